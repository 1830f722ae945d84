"""Handlers whose ``handle`` is a coroutine function: requests run at the same time, one a task."""

from __future__ import annotations

import asyncio
import copy
import threading
from collections.abc import Callable
from typing import Any

from marserve.handlers.context import Context
from marserve.worker.channel import Channel
from marserve.worker.execute import Answer, CallersGone, Executor
from marserve.worker.wire import Cancel, Message, Predict, Request, Threads

MakeExecutor = Callable[[Context], Executor]


class Concurrent:
    """Runs each request as a task of one event loop; answers go out as they come.

    Args:
        channel: A thread of its own reads it.
        handle: The coroutine function.
        context: Copied for each request.
        make_executor: Makes answers for one request's context.
        send: Sends answers with the time that they took, in seconds.
        set_threads: Does what ``Threads`` asks for.
    """

    def __init__(
        self,
        channel: Channel,
        handle: Callable[[list[dict[str, Any]], Context], Any],
        context: Context,
        make_executor: MakeExecutor,
        send: Callable[[list[Answer], float], None],
        set_threads: Callable[[int], None],
    ) -> None:
        self._channel = channel
        self._handle = handle
        self._context = context
        self._make_executor = make_executor
        self._send = send
        self._set_threads = set_threads
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Answers requests until the server closes the socket; those under way are given up."""
        loop = asyncio.get_running_loop()
        closed = asyncio.Event()
        reader = threading.Thread(target=self._read, args=(loop, closed), daemon=True)
        reader.start()
        await closed.wait()
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _read(self, loop: asyncio.AbstractEventLoop, closed: asyncio.Event) -> None:
        try:
            while (received := self._channel.receive()) is not None:
                loop.call_soon_threadsafe(self._take, *received)
        except OSError:
            pass  # the server is gone, which is the end as well
        loop.call_soon_threadsafe(closed.set)

    def _take(self, message: Message, body: bytearray) -> None:
        if isinstance(message, Threads):
            self._set_threads(message.count)
        elif isinstance(message, Cancel):
            loop = asyncio.get_running_loop()
            for task in filter(None, map(self._tasks.get, message.ids)):
                loop.call_soon(task.cancel)  # one that has not begun would end without an answer
        elif isinstance(message, Predict):
            at = 0
            for request in message.requests:
                size = sum(part.size for part in request.parts)
                own = body if size == len(body) else body[at : at + size]
                at += size
                self._tasks[request.id] = asyncio.ensure_future(self._answer(request, own))

    async def _answer(self, request: Request, body: bytearray) -> None:
        context = copy.copy(self._context)
        if context.metrics is not None:
            context.metrics.set_request_ids(request.id)  # for what a handler has kept of it
            context.metrics = copy.copy(context.metrics)  # the ids of this request, all else shared
        executor = self._make_executor(context)
        begin = asyncio.get_running_loop().time()
        try:
            rows = executor.rows([request], body)
            executor.begin([request])
            answers = executor.answers(await self._handle(rows, context))
        except asyncio.CancelledError:
            answers = [executor.failure(request, CallersGone())]
        except BaseException as error:
            answers = [executor.failure(request, error)]
        finally:
            del self._tasks[request.id]
        self._send(answers, asyncio.get_running_loop().time() - begin)
