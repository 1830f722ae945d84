"""Continuous batching: counts from a number on, a piece a step, as long as the request says.

The body is JSON: ``{"from": 3, "count": 2}`` is answered ``3 4 ``. A ``count`` of 0 is answered at
once, without a stream.
"""


class StepwiseHandler:
    def initialize(self, context):
        self.context = context
        context.cache = {}
        self.initialized = True

    def preprocess(self, data):
        ids = [self.context.get_request_id(index) for index in range(len(data))]
        for request_id, row in zip(ids, data, strict=True):
            if row:
                wish = row.get("data") or row.get("body")
                self.context.cache[request_id] = {"next": wish["from"], "left": wish["count"]}
        return ids

    def inference(self, ids):
        results, criteria = [], []
        for request_id in ids:
            state = self.context.cache[request_id]
            results.append(f"{state['next']} ")
            criteria.append(self.criterion(request_id) if state["left"] else None)
            state["next"] += 1
            state["left"] -= 1
        self.context.stopping_criteria = criteria
        return results

    def handle(self, data, context):
        return self.inference(self.preprocess(data))

    def criterion(self, request_id):
        def stop(result):
            if self.context.cache[request_id]["left"] <= 0:
                del self.context.cache[request_id]
                return True
            return False

        return stop
