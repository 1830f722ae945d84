"""Continuous batching: requests join and leave a batch between the steps of their answers.

The handler is called again and again, with those that run and those that have just come. One that
it has seen before comes without its parts; what the handler needs to know of it stands in
``context.cache`` under its id, until it is done or its caller has left.
``context.stopping_criteria`` says of each result whether it was the last: a callable that gets the
result, or None for a request that is answered at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from marserve.handlers.context import Context
from marserve.worker.execute import Answer, CallersGone, Executor
from marserve.worker.loader import Handle
from marserve.worker.wire import Reply, Request

Row = dict[str, Any]


class ContinuousBatch:
    """The requests that are being answered step by step.

    Args:
        executor: Makes answers of results.
        handle: The handler's entry point.
        context: The handler's context.
    """

    def __init__(self, executor: Executor, handle: Handle, context: Context) -> None:
        self._executor = executor
        self._handle = handle
        self._context = context
        self._running: list[Request] = []

    def __len__(self) -> int:
        return len(self._running)

    def drop(self, ids: list[str]) -> list[Answer]:
        """Gives requests up, whose callers are gone; returns the answers that nobody will read."""
        gone = [request for request in self._running if request.id in ids]
        self._running = [request for request in self._running if request.id not in ids]
        return [self._given_up(request, CallersGone()) for request in gone]

    def step(self, requests: list[Request], body: bytearray) -> list[Answer]:
        """Admits requests and computes the next piece of every answer.

        A request that cannot be admitted fails alone: those that run go on without it.

        Args:
            requests: New ones.
            body: Bytes of all their parts, end to end.
        """
        if not requests:
            return self._advance([], [])
        rows = self._executor.rows(requests, body)
        return self._admit(list(zip(requests, rows, strict=True)))

    def _admit(self, new: list[tuple[Request, Row]]) -> list[Answer]:
        requests, rows = [request for request, _ in new], [dict(row) for _, row in new]
        try:
            return self._attempt(requests, rows)
        except BaseException as error:
            if len(new) == 1:
                return [self._given_up(requests[0], error)]
        return [answer for each in new for answer in self._admit([each])]

    def _advance(self, requests: list[Request], rows: list[Row]) -> list[Answer]:
        try:
            return self._attempt(requests, rows)
        except BaseException as error:
            failed, self._running = self._running, []
            return [self._given_up(request, error) for request in failed]

    def _attempt(self, new: list[Request], rows: list[Row]) -> list[Answer]:
        batch = [*self._running, *new]
        self._context.stopping_criteria = None
        self._executor.begin(batch)
        results = self._handle([*({} for _ in self._running), *rows], self._context)
        answers = self._executor.answers(results)
        more = [self._goes_on(index, result) for index, result in enumerate(results)]
        self._running = [
            request
            for request, (reply, _), goes_on in zip(batch, answers, more, strict=True)
            if goes_on and reply.failure is None
        ]
        kept = {request.id for request in self._running}
        self._forget(request.id for request in batch if request.id not in kept)
        return [
            (_unfinished(reply) if reply.id in kept else reply, data) for reply, data in answers
        ]

    def _given_up(self, request: Request, error: BaseException) -> Answer:
        self._forget([request.id])
        return self._executor.failure(request, error)

    def _forget(self, ids: Iterable[str]) -> None:
        """The handler is not told who has left: what it kept of them would stay for good."""
        cache: object = self._context.cache
        if isinstance(cache, dict):
            for id in ids:
                cache.pop(id, None)

    def _goes_on(self, index: int, result: object) -> bool:
        criteria = self._context.stopping_criteria
        stop = criteria[index] if criteria else None
        return stop is not None and not stop(result)


def _unfinished(reply: Reply) -> Reply:
    return Reply(reply.id, reply.status, reply.size, False, reply.phrase, reply.headers)
