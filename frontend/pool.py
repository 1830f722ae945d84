"""The workers of one model: as many as wanted are kept alive, each by a task of its own."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from marserve.frontend.process import exit_cause
from marserve.frontend.workers import LoadError, Worker

_log = logging.getLogger(__name__)

# Seconds before each further try to load, the last one from then on (contract of TorchServe).
BACKOFF_S = (1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610, 987, 1597)
STOP_TIMEOUT_S = 10.0
SHORT_LIFE_S = 5.0  # a worker that dies younger, twice in a row, is restarted with a delay
LONGEST_REST_S = 5.0  # of that delay: requests are accepted meanwhile, and wait


class SlotState(enum.Enum):
    """What a place for a worker is doing."""

    STARTING = "starting"  # its first load, or the one after a worker that had been serving died
    READY = "ready"
    FAILED = "failed"  # the last load failed; tried again after a while
    ABANDONED = "abandoned"  # loads kept failing for longer than the retry window


@dataclass(frozen=True)
class Death:
    """How a worker ended that was still wanted.

    Args:
        worker: Its name.
        cause: In words, such as ``was killed by SIGKILL``.
        at: Seconds since 1970.
        last_lines: Of its stderr.
    """

    worker: str
    cause: str
    at: float
    last_lines: list[str]


class Slot:
    """A place for one worker, filled again whenever the worker dies."""

    def __init__(self) -> None:
        self.state = SlotState.STARTING
        self.worker: Worker | None = None
        self.wanted = True
        self.task: asyncio.Task[None] | None = None
        self.retired = asyncio.Event()


class WorkerPool:
    """Keeps the wanted number of workers alive.

    Args:
        name: Of the model and its version, for the log.
        start: Spawns a worker and has it load; raises LoadError.
        on_ready: Called with a worker that can take batches.
        on_lost: Called with a worker that died and the exit status; its requests are to be saved.
        on_change: Called after every change of a slot's state.
        retry_window_s: Loads that fail are repeated for this long.
        clock: Tells the time in seconds.
        pause: Waits before the next try, or until the slot is given up.
    """

    def __init__(
        self,
        name: str,
        start: Callable[[Slot], Awaitable[Worker]],
        on_ready: Callable[[Worker], None],
        on_lost: Callable[[Worker, int], None],
        on_change: Callable[[], None],
        retry_window_s: float,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[asyncio.Event, float], Awaitable[None]] | None = None,
    ) -> None:
        self._name = name
        self._start = start
        self._on_ready = on_ready
        self._on_lost = on_lost
        self._on_change = on_change
        self._retry_window_s = retry_window_s
        self._clock = clock
        self._pause = pause or wait_at_most
        self._changed = asyncio.Condition()
        self._slots: list[Slot] = []
        self._retiring: set[Slot] = set()
        self.last_error: LoadError | None = None
        self.last_death: Death | None = None

    # -- what there is ---------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """Wanted workers."""
        return len(self._slots)

    @property
    def slots(self) -> list[Slot]:
        """Places of wanted workers."""
        return list(self._slots)

    @property
    def workers(self) -> list[Worker]:
        """Workers that exist and are wanted, ready or not."""
        return [s.worker for s in self._slots if s.worker is not None]

    @property
    def all_workers(self) -> list[Worker]:
        """Workers that exist, also those that only finish what they have."""
        slots = [*self._slots, *self._retiring]
        return [s.worker for s in slots if s.worker is not None]

    @property
    def ready(self) -> int:
        """Workers that can serve."""
        return sum(s.state is SlotState.READY for s in self._slots)

    @property
    def hopeful(self) -> int:
        """Workers that can serve or soon will, as far as is known."""
        return sum(s.state in (SlotState.READY, SlotState.STARTING) for s in self._slots)

    @property
    def hope(self) -> bool:
        """Whether any worker can serve or soon will: asked for every request."""
        for slot in self._slots:
            if slot.state is SlotState.READY or slot.state is SlotState.STARTING:
                return True
        return False

    # -- scaling ---------------------------------------------------------------------------------

    def grow(self, count: int) -> list[Slot]:
        """Adds slots and returns them; their workers start at once."""
        added = [Slot() for _ in range(count)]
        self._slots += added
        for slot in added:
            slot.task = asyncio.create_task(self._keep(slot))
        return added

    def shrink(self, count: int, first: Slot | None = None) -> None:
        """Gives up slots: those without a ready worker first, then idle ones; batches finish.

        Args:
            count: How many.
            first: The one to begin with.
        """
        order = sorted(self._slots, key=lambda slot: (slot is not first, *_usefulness(slot)))
        for slot in order[:count]:
            self._slots.remove(slot)
            self._retiring.add(slot)
            slot.wanted = False
            slot.retired.set()
            if slot.worker is not None:
                slot.worker.stopping = True  # from now on, not from when its task wakes up

    async def settled(self, count: int) -> bool:
        """Waits until ``count`` workers are ready or one cannot be; returns whether they are."""
        async with self._changed:
            await self._changed.wait_for(
                lambda: self.ready >= min(count, self.size) or self.hopeful < self.size
            )
        return self.ready >= count

    def kill(self) -> None:
        """Ends the processes of all workers at once, whatever they are doing."""
        for worker in self.all_workers:
            worker.kill()

    async def close(self) -> None:
        """Ends all workers and waits until they are gone."""
        self.shrink(len(self._slots))
        tasks = [s.task for s in self._retiring if s.task is not None]
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- one slot --------------------------------------------------------------------------------

    async def _keep(self, slot: Slot) -> None:
        failures, first_failure, short_lives = 0, 0.0, 0
        try:
            while slot.wanted:
                try:
                    worker = await self._fill(slot)
                except LoadError as error:
                    failures += 1
                    first_failure = first_failure or self._clock()
                    await self._failed(slot, error, failures, first_failure)
                    if slot.state is SlotState.ABANDONED:
                        await slot.retired.wait()
                    continue
                if worker is None:
                    return
                failures, first_failure, born = 0, 0.0, self._clock()
                await self._tend(slot, worker)
                short_lives = short_lives + 1 if self._clock() - born < SHORT_LIFE_S else 0
                if short_lives > 1:
                    rest_s = BACKOFF_S[min(short_lives, len(BACKOFF_S)) - 1]
                    await self._pause(slot.retired, min(rest_s, LONGEST_REST_S))
        finally:
            self._retiring.discard(slot)
            await self._notify()  # whoever waits for a worker here waits no more

    async def _fill(self, slot: Slot) -> Worker | None:
        """Returns a loaded worker, or None if the slot was given up meanwhile."""
        loading = asyncio.ensure_future(self._start(slot))
        retired = asyncio.ensure_future(slot.retired.wait())
        await asyncio.wait([loading, retired], return_when=asyncio.FIRST_COMPLETED)
        retired.cancel()
        if not loading.done():
            loading.cancel()
            await asyncio.gather(loading, return_exceptions=True)
            return None
        try:
            return loading.result()
        except LoadError:
            raise
        except Exception as error:  # a slot that nobody keeps would be waited for without end
            _log.exception("%s: a worker cannot be started", self._name)
            text = f"the worker cannot be started: {type(error).__name__}: {error}"
            raise LoadError(text) from error

    async def _tend(self, slot: Slot, worker: Worker) -> None:
        """Lets a loaded worker serve until it dies or is not wanted any more."""
        await self._set(slot, SlotState.READY)
        self._on_ready(worker)
        lost = asyncio.ensure_future(worker.gone())
        retired = asyncio.ensure_future(slot.retired.wait())
        await asyncio.wait([lost, retired], return_when=asyncio.FIRST_COMPLETED)
        retired.cancel()
        if not lost.done():
            await self._dismiss(worker, lost)
        lost.cancel()
        code = await worker.end(STOP_TIMEOUT_S)
        if slot.wanted:
            slot.worker = None
            self._mourn(worker, code)
            slot.state = SlotState.STARTING
        self._on_lost(worker, code)
        await self._notify()

    def _mourn(self, worker: Worker, code: int) -> None:
        cause = worker.doom or exit_cause(code)
        lines = list(worker.process.tail) if worker.process is not None else []
        self.last_death = Death(worker.name, cause, time.time(), lines)
        _log.warning("worker %s %s; starting another", worker.name, cause)
        if lines:
            _log.warning("last lines of %s:\n%s", worker.name, "\n".join(lines))

    async def _dismiss(self, worker: Worker, lost: asyncio.Future[Any]) -> None:
        """Waits until a worker that gets no more batches has answered what it has."""
        drained: asyncio.Future[Any] = asyncio.ensure_future(worker.drain())
        await asyncio.wait([lost, drained], return_when=asyncio.FIRST_COMPLETED)
        drained.cancel()

    async def _failed(
        self, slot: Slot, error: LoadError, failures: int, first_failure: float
    ) -> None:
        self.last_error = error
        late = self._clock() - first_failure > self._retry_window_s
        delay = BACKOFF_S[min(failures, len(BACKOFF_S)) - 1]
        what = "given up" if late else f"trying again in {delay} s"
        _log.error("%s: a worker failed to load: %s; %s", self._name, error, what)
        if error.detail and failures == 1:
            _log.error("%s: detail of the failure:\n%s", self._name, error.detail)
        slot.worker = None
        await self._set(slot, SlotState.ABANDONED if late else SlotState.FAILED)
        if not late:
            await self._pause(slot.retired, delay)

    async def _set(self, slot: Slot, state: SlotState) -> None:
        slot.state = state
        await self._notify()

    async def _notify(self) -> None:
        self._on_change()
        async with self._changed:
            self._changed.notify_all()


async def wait_at_most(event: asyncio.Event, limit_s: float) -> None:
    """Waits for an event, but no longer than so many seconds."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(limit_s):
            await event.wait()


def _usefulness(slot: Slot) -> tuple[int, float]:
    """Sorts slots; among idle workers, the one that has been of no use for longest comes first."""
    if slot.state is not SlotState.READY or slot.worker is None:
        return 0, 0.0
    return 1 + slot.worker.busy, slot.worker.idle_since
