"""The ranks that share a model, arranged in stages of the pipeline and shards of the tensors."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import FileStore

from marserve.archiver.errors import HandlerLoadError
from marserve.archiver.parallel import arrange

STORE = "MARSERVE_RANK_STORE"
"""Environment variable: the file by which the ranks find each other."""

_IDLE = timedelta(days=3650)  # the next command comes with the next request, whenever that is
_LOADING = timedelta(minutes=30)


@dataclass(frozen=True, slots=True)
class Place:
    """Where one rank stands.

    Args:
        rank: Its number; stage by stage, shard by shard.
        stages: Parts that the layers are divided into, one after the other.
        shards: Parts that each layer is divided into, side by side.
    """

    rank: int
    stages: int
    shards: int

    @property
    def stage(self) -> int:
        """Which layers it has."""
        return self.rank // self.shards

    @property
    def shard(self) -> int:
        """Which part of them."""
        return self.rank % self.shards

    @property
    def is_last(self) -> bool:
        """Whether its layers are the last ones."""
        return self.stage == self.stages - 1


class Grid:
    """This process among its siblings, joined to them.

    Args:
        place: Of this rank.
        device: Where its part of the model is.

    Raises:
        HandlerLoadError: If the others do not come.
    """

    def __init__(self, place: Place, device: torch.device) -> None:
        self.place = place
        world = place.stages * place.shards
        backend = "nccl" if device.type == "cuda" else "gloo"
        try:
            if not dist.is_initialized():
                store = FileStore(os.environ[STORE], world)
                dist.init_process_group(
                    backend, store=store, rank=place.rank, world_size=world, timeout=_LOADING
                )
            self.control = dist.new_group(backend="gloo", timeout=_IDLE)
            shards = [
                dist.new_group(list(range(first, first + place.shards)))
                for first in range(0, world, place.shards)
            ]
        except (RuntimeError, ValueError) as error:  # what torch.distributed raises
            raise HandlerLoadError(f"rank {place.rank} cannot join the others: {error}") from error
        self._shards = shards[place.stage]

    def add_up(self, values: Tensor) -> Tensor:
        """Returns the sum of the shards' values, to each of them; ``values`` become the sum."""
        if self.place.shards > 1:
            values = values.contiguous()
            dist.all_reduce(values, group=self._shards)
        return values

    def from_previous(self, like: Tensor) -> Tensor:
        """Returns what the stage before this one has computed; of the shape of ``like``."""
        received = torch.empty_like(like, memory_format=torch.contiguous_format)
        dist.recv(received, self.place.rank - self.place.shards)
        return received

    def to_next(self, values: Tensor) -> None:
        """Hands values to the stage after this one."""
        dist.send(values.contiguous(), self.place.rank + self.place.shards)

    def to_first(self, values: Tensor) -> Tensor:
        """Brings what the last stage has computed to rank 0, which gets it returned."""
        place = self.place
        last = (place.stages - 1) * place.shards
        if place.stages == 1:
            return values
        if place.rank == last:
            dist.send(values.contiguous(), 0)
        elif place.rank == 0:
            received = torch.empty_like(values, memory_format=torch.contiguous_format)
            dist.recv(received, last)
            return received
        return values


def find_place(kind: str, ranks: int) -> Place:
    """Returns where this process stands.

    Args:
        kind: ``tp`` for shards, ``pp`` for stages, ``pptp`` for two stages of shards.
        ranks: How many processes share the model.

    Raises:
        HandlerLoadError: If it is not one of so many, or they cannot be arranged so.
    """
    if STORE not in os.environ or os.environ.get("WORLD_SIZE") != str(ranks):
        raise HandlerLoadError(
            f"parallelType: {kind} needs {ranks} processes that the server starts together;"
            " this one was started alone"
        )
    try:
        return Place(int(os.environ["RANK"]), *arrange(kind, ranks))
    except ValueError as error:
        raise HandlerLoadError(str(error)) from error
