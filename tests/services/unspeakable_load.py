"""Fails to load with a message that holds the path of a file of its archive."""

import os


class Service:
    def initialize(self, context):
        open(os.path.join(context.system_properties["model_dir"], "absent.bin")).close()

    def handle(self, data, context):
        return ["never" for _ in data]
