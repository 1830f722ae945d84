"""Fails to load, or ends its worker, in the way that ``doom`` in model-config.yaml names.

``doom: wait`` waits for the file that ``release`` there names, and loads. Asked with the text
``large``, it answers 2,000 bytes; asked with ``end``, it writes a line to stderr and ends as
``end`` there says.
"""

import os
import signal
import sys
import time


class DoomedService:
    def initialize(self, context):
        config = context.model_yaml_config
        self.end = config.get("end", "")
        doom = config.get("doom", "")
        if doom == "import":
            import no_such_library  # noqa: F401
        if doom == "syntax":
            compile("def handle(data, context)\n    pass\n", "helper.py", "exec")
        if doom == "exit":
            sys.exit(5)
        if doom == "hard":
            print("about to end", file=sys.stderr, flush=True)
            os._exit(6)
        while doom == "wait" and not os.path.exists(config["release"]):
            time.sleep(0.01)
        if doom == "memory":
            self.weights = bytearray(1 << 60)  # more than any machine has

    def handle(self, data, context):
        if any(row["body"] == "end" for row in data):
            print("last words", file=sys.stderr, flush=True)
            if self.end == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.end == "abort":
                os.abort()
            os._exit(7)
        return ["x" * 2000 if row["body"] == "large" else "fine" for row in data]
