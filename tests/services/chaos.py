"""Echoes a token and keeps a journal of what it ran, so that a test can count executions.

The body is ``TOKEN`` or ``TOKEN FAULT``; the answer is the token and the model's version. Each call
of ``handle`` appends a line to the file that ``journal`` in model-config.yaml names: process id,
then the tokens of the batch. ``workMs`` there is the time that a batch takes.
"""

import os
import signal
import sys
import time


class ChaosService:
    def initialize(self, context):
        config = context.model_yaml_config
        self.journal = config["journal"]
        self.work_s = config.get("workMs", 0) / 1000
        self.version = context.manifest["model"]["modelVersion"]
        if config.get("refuseToLoad"):
            raise RuntimeError("this version cannot be loaded")

    def handle(self, data, context):
        wishes = self.preprocess(data)
        self.note(" ".join(token for token, _ in wishes))
        time.sleep(self.work_s)
        results = self.postprocess(self.inference(wishes, context))
        return results + ["one too many"] * any(fault == "length" for _, fault in wishes)

    def preprocess(self, data):
        wishes = []
        for row in data:
            text = row.pop("body")  # a handler may do so: a batch that is run again must be whole
            text = text if isinstance(text, str) else bytes(text).decode()
            token, _, fault = text.partition(" ")
            if fault == "preprocess":
                raise ValueError(f"{token} is bad")
            wishes.append((token, fault))
        return wishes

    def inference(self, wishes, context):
        for index, (token, fault) in enumerate(wishes):
            if fault == "inference":
                raise KeyError(token)
            if fault == "memory":
                bytearray(1 << 60)
            if fault == "sys_exit":
                sys.exit(3)
            if fault == "exit":
                os._exit(3)
            if fault == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            while fault == "hang":
                pass
            if fault.startswith("stream"):
                self.stream(index, int(fault.removeprefix("stream")), context)
        return wishes

    def postprocess(self, wishes):
        if any(fault == "postprocess" for _, fault in wishes):
            raise RuntimeError("nothing can be made of it")
        return [
            object() if fault == "object" else f"{token} {self.version}" for token, fault in wishes
        ]

    def stream(self, index, count, context):
        for step in range(count):
            self.note(f"piece-{step}")
            context.emit(index, f"piece {step} ")
            time.sleep(0.02)

    def note(self, text):
        with open(self.journal, "a") as journal:
            journal.write(f"{os.getpid()} {text}\n")
