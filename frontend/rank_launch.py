"""Starts a worker that is several processes, and has each of them load its part."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec

from marserve.frontend.group import Meeting, RankGroup
from marserve.frontend.process import ChildProcess
from marserve.frontend.ranks import RankPlan, rank_environment
from marserve.frontend.workers import LoadError, Worker
from marserve.worker import wire

if TYPE_CHECKING:
    from marserve.frontend.model import Model

StartProcess = Callable[[str, Mapping[str, str]], Awaitable[ChildProcess]]


class RankLauncher:
    """Brings up the ranks of workers of one model.

    Args:
        model: Whose workers.
        plan: What each consists of.
        devices: The GPUs that it may use; none for the CPU.
        start: Starts one process, by its name, with further environment variables.
    """

    def __init__(
        self, model: Model, plan: RankPlan, devices: tuple[int, ...], start: StartProcess
    ) -> None:
        self._model = model
        self._plan = plan
        self._devices = devices
        self._start = start

    async def bring_up(self, worker: Worker, load: wire.Load) -> None:
        """Has all ranks of a worker load, or leaves no process.

        Args:
            worker: Becomes rank 0.
            load: What a worker of one process would be told.

        Raises:
            LoadError: If one of them cannot.
            OSError: If one cannot be started.
        """
        group, processes = await self._members(worker)
        worker.fixed_threads = self._plan.threads is not None
        worker.ranks = tuple(
            Worker(f"{worker.name}-rank{rank}", worker.number, self._model)
            for rank in range(1, self._plan.processes)
        )
        loads = [worker.load(group, self._told(load, 0))]
        loads += [
            other.load(process, self._told(load, rank))
            for rank, (other, process) in enumerate(
                zip(worker.ranks, processes[1:], strict=True), start=1
            )
        ]
        try:
            await _all_or_none(loads)
        except BaseException:
            group.kill()
            await worker.end(1.0)
            raise
        if not self._plan.shared:
            for other in worker.ranks:
                other.follows = True

    async def _members(self, worker: Worker) -> tuple[RankGroup, list[ChildProcess]]:
        plan, meeting = self._plan, Meeting()
        processes: list[ChildProcess] = []
        try:
            for rank in range(plan.processes):
                env = rank_environment(plan, worker.name, rank, meeting.port, meeting.directory)
                processes.append(
                    await self._start(f"{worker.name}-rank{rank}", env | self._visible(worker))
                )
        except BaseException:
            for process in processes:
                process.kill()
                process.sock.close()
            meeting.close()
            raise
        return RankGroup(processes, meeting), processes

    def _visible(self, worker: Worker) -> dict[str, str]:
        """Each worker sees its own devices alone, so that those of rank 0 are number 0."""
        if not self._devices:
            return {}
        level = self._plan.level
        if len(self._devices) < level:
            raise LoadError(
                f"parallelLevel {level} needs {level} GPUs, and there are {len(self._devices)};"
                " deviceType: cpu runs the ranks on the CPU"
            )
        ids = self._plan.devices(worker.number, self._devices)
        return {"CUDA_VISIBLE_DEVICES": ",".join(map(str, ids))}

    def _told(self, load: wire.Load, rank: int) -> wire.Load:
        gpu = rank if self._devices else None
        return msgspec.structs.replace(load, rank=rank, ranks=self._plan.processes, gpu_id=gpu)


async def _all_or_none(loads: Iterable[Awaitable[None]]) -> None:
    """Waits until every rank has loaded, or one has failed; its error is the worker's."""
    tasks = [asyncio.ensure_future(load) for load in loads]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for rank, task in enumerate(tasks):
            if task.done():
                _raise_named(rank, task)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _raise_named(rank: int, task: asyncio.Future[None]) -> None:
    error = task.exception()
    if isinstance(error, LoadError):
        raise LoadError(f"rank {rank}: {error}", error.memory, error.detail) from error
    if error is not None:
        raise error
