"""A stateful sequence: running sums, kept in ``context.cache`` under the sequence's id."""


class SequenceHandler:
    def initialize(self, context):
        self.context = context
        context.cache = {}
        self.initialized = True

    def preprocess(self, data):
        results = []
        for index, row in enumerate(data):
            sequence = self.context.get_sequence_id(index)
            if self.flag(index, self.context.header_key_sequence_start):
                self.context.cache[sequence] = {"start": True, "sum": 0}
            value = row.get("data") or row.get("body")
            text = value.decode() if isinstance(value, (bytes, bytearray)) else value
            state = self.context.cache[sequence]
            state["sum"] += int(text)
            self.context.set_response_header(index, self.context.header_key_sequence_id, sequence)
            results.append(str(state["sum"]))
            if self.flag(index, self.context.header_key_sequence_end):
                del self.context.cache[sequence]
        return results

    def flag(self, index, key):
        return str(self.context.get_request_header(index, key)).lower() == "true"

    def handle(self, data, context):
        return self.preprocess(data)
