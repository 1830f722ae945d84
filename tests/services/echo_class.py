"""Class style without a base: says what it was asked, with its model, batch and index in the batch.

Answer: ``{"model", "version", "echo", "index", "batch", "request_id", "explain", "initialized"}``.
"""


class EchoService:
    def __init__(self):
        self.initialized = False
        self.manifest = None

    def initialize(self, context):
        self.manifest = context.manifest
        self.initialized = True

    def handle(self, data, context):
        return [
            {
                "model": context.model_name,
                "version": self.manifest["model"]["modelVersion"],
                "echo": text_of(row),
                "index": index,
                "batch": len(data),
                "request_id": context.get_request_id(index),
                "explain": context.get_request_header(index, "explain"),
                "initialized": self.initialized,
            }
            for index, row in enumerate(data)
        ]


def text_of(row):
    value = row.get("data")
    if value is None:
        value = row.get("body")
    return value.decode() if isinstance(value, (bytes, bytearray)) else value
