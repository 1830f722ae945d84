"""Supervision on a clock of its own: nothing here takes time."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from marserve.frontend.pool import BACKOFF_S, LONGEST_REST_S, SHORT_LIFE_S, Slot, WorkerPool
from marserve.frontend.workers import LoadError, Worker, WorkerOwner


class Indifferent:
    """Whom workers tell what they do."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


class World:
    """A clock that only pauses move, and workers without processes that load as planned.

    Args:
        plan: What each start does, in turn: None loads, a text is the cause of a failure. When it
            is used up, loads succeed.
        window_s: The pool's retry window.
    """

    def __init__(self, plan: list[str | None], window_s: float = 300.0) -> None:
        self.now = 1000.0
        self.pauses: list[float] = []
        self.workers: list[Worker] = []
        self.lost: list[Worker] = []
        self.starts = 0
        self._plan = plan
        self._ready: asyncio.Queue[Worker] = asyncio.Queue()
        self.given_up = asyncio.Event()
        self._window_s = window_s
        self.pool = WorkerPool(
            "model 1.0",
            self._start,
            self._ready.put_nowait,
            lambda worker, _: self.lost.append(worker),
            self._changed,
            window_s,
            lambda: self.now,
            self._pause,
        )

    async def _start(self, slot: Slot) -> Worker:
        self.starts += 1
        cause = self._plan.pop(0) if self._plan else None
        if cause is not None:
            raise LoadError(cause)
        owner = cast(WorkerOwner, Indifferent())
        slot.worker = worker = Worker(f"W-{self.starts}", self.starts, owner)
        worker.ready = True
        self.workers.append(worker)
        return worker

    async def _pause(self, retired: asyncio.Event, limit_s: float) -> None:
        self.pauses.append(limit_s)
        self.now += limit_s
        await asyncio.sleep(0)

    def _changed(self) -> None:
        if not self.pool.hopeful and self.now - 1000 > self._window_s:
            self.given_up.set()

    async def ready(self) -> Worker:
        return await asyncio.wait_for(self._ready.get(), 10)

    async def die(self, age_s: float) -> Worker:
        """Lets the next ready worker live for so long, and die."""
        worker = await self.ready()
        self.now += age_s
        worker.lost.set()
        return worker

    async def end(self) -> None:
        await self.pool.close()
        assert self.pool.all_workers == []


async def test_failed_loads_are_repeated_with_the_back_off_of_torchserve() -> None:
    world = World(["no file"] * 10, window_s=1e9)
    world.pool.grow(1)
    await world.ready()

    assert world.pauses == list(BACKOFF_S[:10])
    assert str(world.pool.last_error) == "no file"
    assert (world.pool.ready, world.starts) == (1, 11)
    await world.end()


async def test_loads_that_fail_for_too_long_are_given_up() -> None:
    world = World(["no file"] * 50, window_s=10.0)
    world.pool.grow(1)
    await asyncio.wait_for(world.given_up.wait(), 10)

    assert world.pauses == [1, 1, 2, 3, 5]  # 12 s: beyond the window, the sixth failure is the last
    assert world.starts == 6
    assert await world.pool.settled(1) is False
    await world.end()


async def test_back_off_begins_anew_after_a_load() -> None:
    world = World(["no file", "no file", "no file", None, "no file", "no file"])
    world.pool.grow(1)
    await world.die(age_s=60)
    await world.ready()

    assert world.pauses == [1, 1, 2, 1, 1]
    await world.end()


async def test_retry_window_begins_anew_after_a_load() -> None:
    world = World(["no file", "no file", None, "no file", "no file"], window_s=3.0)
    world.pool.grow(1)
    await world.die(age_s=1000)

    await world.ready()
    assert world.pool.ready == 1
    await world.end()


async def test_first_death_costs_no_pause() -> None:
    world = World([])
    world.pool.grow(1)
    first = await world.die(age_s=0.1)
    second = await world.ready()

    assert world.pauses == []
    assert world.lost == [first]
    assert second is not first
    await world.end()


async def test_workers_that_die_young_are_started_ever_later_up_to_a_limit() -> None:
    world = World([])
    world.pool.grow(1)
    for _ in range(8):
        await world.die(age_s=0.1)
    await world.ready()

    assert world.pauses == [1, 2, 3, LONGEST_REST_S, LONGEST_REST_S, LONGEST_REST_S, LONGEST_REST_S]
    await world.end()


async def test_long_life_forgives_short_ones() -> None:
    world = World([])
    world.pool.grow(1)
    for age_s in (0.1, 0.1, SHORT_LIFE_S, 0.1):
        await world.die(age_s)
    await world.ready()

    assert world.pauses == [1]
    await world.end()


async def test_worker_that_died_is_not_sent_anything_and_another_is_hoped_for() -> None:
    world = World([])
    world.pool.grow(1)
    worker = await world.die(age_s=1)
    again = await world.ready()

    assert worker.stopping
    assert not again.stopping
    assert world.pool.workers == [again]
    await world.end()


async def test_whatever_goes_wrong_in_a_start_is_a_failed_load() -> None:
    world = World([])

    async def start(slot: Slot) -> Worker:
        raise ZeroDivisionError

    world.pool = WorkerPool(
        "model 1.0", start, lambda _: None, lambda *_: None, lambda: None, 0, lambda: 0.0
    )
    world.pool.grow(1)

    assert await world.pool.settled(1) is False
    assert "ZeroDivisionError" in str(world.pool.last_error)
    await world.end()


@pytest.mark.parametrize("count", [1, 3])
async def test_given_up_slots_end_during_a_pause(count: int) -> None:
    paused = asyncio.Event()

    async def start(slot: Slot) -> Worker:
        raise LoadError("no file")

    async def pause(retired: asyncio.Event, limit_s: float) -> None:
        paused.set()
        await retired.wait()

    pool = WorkerPool(
        "model 1.0", start, lambda _: None, lambda *_: None, lambda: None, 300, pause=pause
    )
    pool.grow(count)
    await paused.wait()

    await asyncio.wait_for(pool.close(), 10)
    assert (pool.size, pool.ready, pool.hopeful) == (0, 0, 0)
