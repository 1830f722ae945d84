"""Scaling and replacing of workers on a clock of its own, with the real pool and queue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tests.frontend.test_pool import World

from marserve.frontend.autoscaler import Autoscaler
from marserve.frontend.batching import BatchQueue
from marserve.frontend.pool import Slot
from marserve.frontend.recycling import Recycler
from marserve.frontend.settings import ModelSettings
from marserve.frontend.types import ChunkStream, InferenceRequest
from marserve.frontend.workers import Worker


class Small:
    """As much of a model as is looked at here, around the pool of a world."""

    name, version, draining = "m", "1.0", False

    def __init__(self, world: World, least: int = 1, most: int = 1, **settings: Any) -> None:
        self.settings = ModelSettings(least, most, 1, 0, 60, 60, 100, **settings)
        self.min_workers, self.max_workers = least, most
        self.pool = world.pool
        self.queue = BatchQueue(1, 0.0, 100)

    def resize(self, change: int, slot: Slot | None = None) -> None:
        if change > 0:
            self.pool.grow(change)
        else:
            self.pool.shrink(-change, slot)

    def ask(self, now: float) -> None:
        self.queue.put(InferenceRequest("r", "predict", {}, [], [], ChunkStream()), now)


async def until(condition: Callable[[], bool]) -> None:
    """Lets the other tasks go on; they need no time."""
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it does not happen")


def model(world: World, **settings: Any) -> Any:
    return Small(world, **settings)


async def test_requests_that_wait_bring_a_worker_and_idleness_takes_it() -> None:
    world = World([])
    small = model(world, most=2, scale_down_idle_s=60.0)
    scaler = Autoscaler(small)
    small.resize(1)
    first = await world.ready()
    first.send([InferenceRequest("a", "predict", {}, [], [], ChunkStream())], 1000.0)
    small.ask(1000.0)

    assert [scaler.look(1000.0), scaler.look(1000.4), scaler.look(1000.6)] == [0, 0, 1]
    second = await world.ready()
    second.idle_since = 1001.0
    small.queue.clear()
    first.in_flight.take_all()
    first.idle_since = 1050.0
    assert [scaler.look(1060.9), scaler.look(1061.0)] == [0, -1]
    assert small.pool.workers == [first]  # the one that was of use last
    assert scaler.look(9999.0) == 0
    first.lost.set()  # it never answers what it was sent
    await world.end()


async def test_model_sleeps_wakes_and_says_so() -> None:
    world = World([])
    small = model(world, idle_timeout_s=10.0)
    scaler = Autoscaler(small)
    small.resize(1)
    assert not scaler.dormant
    await world.ready()
    small.ask(1000.0)
    small.queue.clear()
    scaler.look(1000.0)

    assert [scaler.look(1009.9), scaler.look(1010.1)] == [0, -1]
    assert (scaler.dormant, scaler.servable, small.pool.size) == (True, True, 0)
    assert scaler.wake()
    assert scaler.dormant  # until the worker is there
    assert scaler.wake()
    assert small.pool.size == 1  # woken once
    await world.ready()
    assert not scaler.dormant
    assert not scaler.wake()
    scaler.close()
    await world.end()


async def test_waking_that_fails_is_no_sleep() -> None:
    world = World([None, *["gone"] * 50], window_s=10.0)
    small = model(world, idle_timeout_s=10.0)
    scaler = Autoscaler(small)
    small.resize(1)
    await world.ready()
    assert scaler.look(2000.0) == -1
    assert scaler.wake()

    await until(lambda: small.pool.last_error is not None)

    assert (scaler.dormant, scaler.servable, scaler.wake()) == (False, False, False)
    scaler.close()
    await world.end()


async def test_replacement_is_ready_before_the_worn_worker_goes() -> None:
    world = World([])
    small = model(world, max_requests_per_worker=10)
    recycler = Recycler(small)
    small.resize(1)
    old = await world.ready()
    assert not recycler.step(0.0)
    old.served = 10

    assert recycler.step(0.1)
    assert (small.pool.workers, old.stopping) == ([old], False)
    new = await world.ready()
    assert not recycler.step(0.2)
    assert (small.pool.workers, old.stopping) == ([new], True)
    await world.end()


async def test_worn_worker_stays_if_there_is_no_other() -> None:
    world = World([None, *["gone"] * 50], window_s=10.0)
    small = model(world, max_requests_per_worker=10)
    recycler = Recycler(small)
    small.resize(1)
    old = await world.ready()
    old.served = 10
    recycler.step(0.0)
    await until(lambda: small.pool.last_error is not None)

    assert [recycler.step(1.0), recycler.step(2.0)] == [False, False]
    assert (small.pool.workers, old.stopping) == ([old], False)
    assert recycler.step(62.0)  # it is tried again
    await world.end()


async def test_large_worker_is_replaced_and_a_limit_that_none_can_keep_is_dropped() -> None:
    world = World([])
    sizes: dict[Worker, int] = {}
    small = model(world, max_worker_memory_mb=100)
    recycler = Recycler(small, lambda worker: sizes.get(worker, 90 << 20))
    small.resize(1)
    old = await world.ready()
    assert not recycler.step(1.0)
    sizes[old] = 101 << 20

    assert not recycler.step(1.5)  # memory is looked at once a second
    assert recycler.step(2.0)
    new = await world.ready()
    sizes[new] = 150 << 20
    assert not recycler.step(3.0)
    assert small.pool.workers == [new]
    assert not recycler.step(9.0)  # a fresh worker is above the limit: no use in going on
    await world.end()


async def test_scaling_ends_a_replacement() -> None:
    world = World([])
    small = model(world, max_requests_per_worker=10)
    recycler = Recycler(small)
    small.resize(1)
    old = await world.ready()
    old.served = 10
    recycler.step(0.0)
    small.resize(-1)  # takes the one that is not ready

    assert not recycler.step(0.1)
    assert small.pool.workers == [old]
    await world.end()
