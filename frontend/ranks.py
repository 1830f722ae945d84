"""How many processes one worker of a model is, and what each is told about the others.

A handler that was written for ``torchrun`` finds the same variables in its environment.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path

from marserve.archiver.model_config import ModelConfig
from marserve.worker.ranks import STORE

_HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class RankPlan:
    """The processes of each worker of a model.

    Args:
        kind: ``tp``, ``pp``, ``pptp`` or ``custom``.
        level: Devices of a worker.
        threads: Compute threads of a process, if the configuration says.
    """

    kind: str
    level: int
    threads: int | None = None

    @property
    def processes(self) -> int:
        """Processes that the server starts; a handler of kind ``custom`` starts the others."""
        return 1 if self.kind == "custom" else self.level

    @property
    def shared(self) -> bool:
        """Whether every rank gets every batch; in a pipeline the first one alone does."""
        return self.kind in ("tp", "pptp")

    def devices(self, worker: int, ids: tuple[int, ...]) -> tuple[int, ...]:
        """Returns the devices of one worker: groups of them are taken in turn.

        Args:
            worker: Its number.
            ids: All devices that the model may use.
        """
        first = worker % max(1, len(ids) // self.level) * self.level
        return ids[first : first + self.level]


def plan_ranks(config: ModelConfig, gpus: int = 0) -> RankPlan | None:
    """Returns how the workers of a model are made up; None if each is one ordinary process.

    Args:
        config: Of the model.
        gpus: Those that it may use; ``model_parallel`` without a level shares it among all of them.
    """
    torchrun = config.torchrun
    level = (torchrun.nproc_per_node if torchrun else None) or config.parallel_level or 0
    if not level and config.handler.model_parallel and gpus > 1:
        level = gpus
    kind = config.parallel_type or ("tp" if config.handler.model_parallel else None)
    if kind is None or level < 1:
        return None
    return RankPlan(kind, level, torchrun.omp_number_threads if torchrun else None)


def rank_environment(
    plan: RankPlan, run: str, rank: int, port: int, directory: Path
) -> dict[str, str]:
    """Returns the environment variables that one rank has besides a worker's own.

    Args:
        plan: Of its worker.
        run: Names the worker.
        rank: 0 for the one that answers.
        port: Where rank 0 may open the store of ``torch.distributed``.
        directory: Private to the ranks of this worker.
    """
    world = str(plan.processes)
    variables = {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "ROLE_RANK": str(rank),
        "WORLD_SIZE": world,
        "LOCAL_WORLD_SIZE": world,
        "ROLE_WORLD_SIZE": world,
        "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "1",
        "ROLE_NAME": "default",
        "MASTER_ADDR": _HOST,
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": run,
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "LOGLEVEL": "INFO",
        # All ranks are on this machine: nothing of theirs is for the network.
        "GLOO_SOCKET_IFNAME": "lo",
        "NCCL_SOCKET_IFNAME": "lo",
        STORE: str(directory / "store"),
    }
    if plan.threads:
        variables["OMP_NUM_THREADS"] = str(plan.threads)
    return variables


def hold_port() -> socket.socket:
    """Returns a socket that keeps a port from others until rank 0 listens there, and after.

    It never listens itself, and both sides allow the address to be shared, so rank 0 can bind it.

    Raises:
        OSError: If there is none.
    """
    held = socket.socket(socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET)
    try:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if held.family == socket.AF_INET6:
            held.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        held.bind(("", 0))
    except BaseException:
        held.close()
        raise
    return held
