"""One malformed request in a batch: the whole ``handle`` raises, as handlers written in a hurry do.

Every body must be a number; the answer is its square, as text.
"""


class SquareService:
    def initialize(self, context):
        self.initialized = True

    def handle(self, data, context):
        return [str(float(row.get("data") or row.get("body")) ** 2) for row in data]
