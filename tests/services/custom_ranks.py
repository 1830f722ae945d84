"""A handler of kind custom: it starts the other processes of its model by itself."""

import subprocess
import sys
from typing import Any

from marserve.handlers.base import BaseHandler

PART = "import sys\nfor line in sys.stdin: print(float(line) * 10, flush=True)"


class CustomRanks(BaseHandler):
    def initialize(self, context: Any) -> None:
        config = context.model_yaml_config
        assert config["parallelType"] == "custom"
        self.parts = [
            subprocess.Popen(
                [sys.executable, "-c", PART],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in range(1, config["parallelLevel"])
        ]
        self.initialized = True

    def handle(self, data: Any, context: Any) -> list[Any]:
        return [self.add(float(row["body"])) for row in data]

    def add(self, value: float) -> dict[str, Any]:
        for part in self.parts:
            part.stdin.write(f"{value}\n")
            part.stdin.flush()
        found = [float(part.stdout.readline()) for part in self.parts]
        return {"sum": value + sum(found), "parts": [part.pid for part in self.parts]}
