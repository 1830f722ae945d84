"""Written for torchrun: every rank joins a process group, and all take part in every batch."""

import os
from typing import Any

import torch
import torch.distributed as dist

from marserve.handlers.base import BaseHandler


class Summing(BaseHandler):
    def initialize(self, context: Any) -> None:
        rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        if os.environ.get("FAIL_RANK") == str(rank):
            raise ValueError(f"rank {rank} has no weights")
        dist.init_process_group("gloo")
        self.rank, self.ranks = rank, ranks
        self.local = int(os.environ["LOCAL_RANK"])
        print(f"I am rank {rank} of {ranks}", flush=True)
        self.initialized = True

    def handle(self, data: Any, context: Any) -> list[Any]:
        values = [float(row["body"]) for row in data]  # raises the same in every rank
        own = torch.tensor([[value * 10**self.rank, 1.0] for value in values])
        dist.all_reduce(own)
        return [
            {
                "sum": total,
                "ranks": count,
                "rank": self.rank,
                "local": self.local,
                "pid": os.getpid(),
            }
            for total, count in own.tolist()
        ]
