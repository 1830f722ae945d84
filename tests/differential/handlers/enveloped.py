"""What a handler sees behind an envelope: what came in comes back, of a tensor its data."""


class EnvelopedHandler:
    def initialize(self, context):
        self.initialized = True

    def handle(self, data, context):
        return [self.plain(row) for row in data]

    def plain(self, row):
        if isinstance(row, (bytes, bytearray)):
            return "bytes: " + row.decode()
        return row["data"] if isinstance(row, dict) and "data" in row else row
