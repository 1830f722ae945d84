"""A running sum for each sequence, of tensors: the input ``x``, the output ``sum``."""

import numpy


class Sums:
    def initialize(self, context):
        self.sums = {}

    def handle(self, data, context):
        results = []
        for index, row in enumerate(data):
            sequence = context.get_sequence_id(index)
            if context.get_request_header(index, context.header_key_sequence_start) == "true":
                self.sums[sequence] = 0
            self.sums[sequence] += int(row["x"].sum())
            results.append({"sum": numpy.array([self.sums[sequence]], "int64")})
        return results
