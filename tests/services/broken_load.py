"""Imports well and fails in ``initialize``: the file it wants is not in the archive."""

import os


class BrokenService:
    def initialize(self, context):
        model_dir = context.system_properties.get("model_dir")
        path = os.path.join(model_dir, "weights.bin")
        if not os.path.isfile(path):
            raise RuntimeError("Missing the weights.bin file")

    def handle(self, data, context):
        return ["never" for _ in data]
