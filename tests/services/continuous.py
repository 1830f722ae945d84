"""Continuous batching in the style of TorchServe's documentation: counts up, a piece a step.

The body is JSON: ``{"from": 3, "count": 4}`` answers ``3 4 5 6 `` in four pieces; ``"fail": true``
makes the step fail that admits it. Each step writes its batch to the file named by ``journal`` in
model-config.yaml: one id a request, in brackets if it has just come.
"""

import os
import time


class CountingHandler:
    def initialize(self, context):
        self.context = context
        self.journal = context.model_yaml_config["journal"]
        self.gate = context.model_yaml_config.get("gate", "")
        context.cache = {}

    def handle(self, data, context):
        ids = [context.get_request_id(index) for index in range(len(data))]
        new = [bool(row) for row in data]
        with open(self.journal, "a") as journal:
            names = [f"[{i[:8]}]" if fresh else i[:8] for i, fresh in zip(ids, new, strict=True)]
            journal.write(" ".join(names) + "\n")
        wishes = [row.get("body") for row in data]
        if any(wish and wish.get("fail") for wish in wishes):
            raise ValueError("this one cannot be counted")
        for request_id, wish in zip(ids, wishes, strict=True):
            if wish:
                context.cache[request_id] = {"next": wish["from"], "left": wish["count"]}
        while self.gate and not os.path.exists(self.gate):
            time.sleep(0.01)
        time.sleep(context.model_yaml_config.get("step_s", 0.01))
        results = [self.step(context.cache[request_id]) for request_id in ids]
        context.stopping_criteria = [self.criterion(request_id) for request_id in ids]
        return results

    def step(self, state):
        text = f"{state['next']} "
        state["next"] += 1
        state["left"] -= 1
        return text

    def criterion(self, request_id):
        def stop(result):
            if self.context.cache[request_id]["left"]:
                return False
            del self.context.cache[request_id]
            return True

        return stop
