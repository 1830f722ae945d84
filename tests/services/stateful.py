"""A stateful sequence in the style of TorchServe's documentation: a running sum for each sequence.

The body is a number; the answer ``SUM PROCESS``, where the process is that of the worker.
"""

import os
import time


class SumHandler:
    def initialize(self, context):
        self.sums = {}

    def handle(self, data, context):
        return [self.add(row, index, context) for index, row in enumerate(data)]

    def add(self, row, index, context):
        sequence = context.get_sequence_id(index)
        if context.get_request_header(index, context.header_key_sequence_start) == "true":
            self.sums[sequence] = 0
        wish = row["body"]
        if wish == "exit":
            os._exit(3)
        time.sleep(0.01)
        self.sums[sequence] += int(wish)
        context.set_response_header(index, context.header_key_sequence_id, sequence)
        return f"{self.sums[sequence]} {os.getpid()}"
