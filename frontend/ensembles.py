"""Triton's ensembles: models whose requests the server itself leads through other models."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

from marserve.archiver.tensor_marks import LAYOUT, MARK, NOTHING, WANTED
from marserve.archiver.triton_config import TritonConfig
from marserve.archiver.triton_ensemble import Step, read_steps
from marserve.archiver.triton_folder import ENSEMBLE_HANDLER, KEY
from marserve.frontend.api.http import new_request_id
from marserve.frontend.autoscaler import Autoscaler
from marserve.frontend.errors import BadRequest, DeadlineExceeded, InternalError, ServeError
from marserve.frontend.model import Model
from marserve.frontend.types import Chunk, ChunkStream, InferenceRequest
from marserve.worker.wire import Buffer, Failure, Part

__all__ = ["ENSEMBLE_HANDLER", "Ensemble", "StepFailed"]

Tensors = dict[str, tuple[Part, Buffer]]
"""Part and bytes of each tensor of an ensemble that is there already."""
Find = Callable[[str, str | None], Model]


class StepFailed(ServeError):
    """A step gave no result; has the status of its own error.

    Args:
        ensemble: Its name.
        model: Of the step.
        status: HTTP status.
        message: The cause.
    """

    def __init__(self, ensemble: str, model: str, status: int, message: str) -> None:
        super().__init__(f"in ensemble '{ensemble}', step '{model}': {message}")
        self.status = status


class _Readiness(Autoscaler):
    """An ensemble has no workers; it can serve when all of its steps can."""

    def __init__(self, ensemble: Ensemble) -> None:
        super().__init__(ensemble)
        self._ensemble = ensemble

    @property
    def servable(self) -> bool:
        """Whether a request would be answered."""
        return self._ensemble.able()


class Ensemble(Model):
    """A model of steps.

    Attributes:
        steps: In an order in which they can run.
        find: Returns the model of a step, by name and version.
    """

    find: Find

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        section: dict[str, Any] = self.archive.config.raw[KEY]
        self.steps = read_steps(TritonConfig(section["config"]))
        self._outputs = [each["name"] for each in section["config"].get("output", [])]
        self._running: set[asyncio.Task[None]] = set()
        self.scaler = _Readiness(self)

    def able(self) -> bool:
        """Tells whether every step has a model that can serve."""
        try:
            models = [self.find(step.model, step.version or None) for step in self.steps]
        except ServeError:
            return False
        return all(model.scaler.servable and not model.draining for model in models)

    def submit(self, request: InferenceRequest) -> None:
        """Accepts a request; its answer goes to its sink.

        Raises:
            ServiceUnavailable: If the ensemble is being stopped.
            BadRequest: If it holds no tensors.
        """
        if self.draining:
            raise self._no_worker(request)
        if any(not (part.content_type or "").startswith(MARK) for part in request.parts):
            raise BadRequest(
                "an ensemble takes tensors: ask it by the Open Inference Protocol (V2)"
            )
        request.queued_at = request.sent_at = time.monotonic()
        limit_s = request.timeout_s
        if limit_s is None:
            limit_s = self.settings.client_timeout_s or self.settings.response_timeout_s
        request.deadline = request.queued_at + limit_s
        task = asyncio.ensure_future(self._serve(request))
        self._running.add(task)

        def give_up(_: InferenceRequest) -> None:
            task.cancel()

        request.on_cancel = give_up
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._check_drained()

    def _check_drained(self) -> None:
        if self.draining and not self._running:
            self._drained.set()

    async def _serve(self, request: InferenceRequest) -> None:
        try:
            chunk = await self._run(request)
        except ServeError as error:
            chunk = error.chunk()
        metrics = self._by_version if request.pinned else self._by_default
        now = time.monotonic()
        metrics.observe(now - request.queued_at, 0.0)
        self.statistics.request(request, chunk.failure is not None, now)
        request.send(chunk)

    async def _run(self, request: InferenceRequest) -> Chunk:
        given = zip(request.parts, request.bodies, strict=True)
        tensors: Tensors = {part.name: (part, body) for part, body in given}
        done: dict[str, asyncio.Task[None]] = {}
        try:
            async with asyncio.TaskGroup() as group:
                for step in self.steps:
                    waits = [done[name] for name in step.inputs.values() if name in done]
                    task = group.create_task(self._take(step, waits, tensors, request))
                    done |= dict.fromkeys(step.outputs.values(), task)
        except* ServeError as failures:
            raise _first(failures) from None
        layout, bodies = [], []
        for name in self._outputs:
            if name in tensors:
                part, body = tensors[name]
                datatype, _, sizes = (part.content_type or "").removeprefix(MARK).partition(" ")
                shape = [int(size) for size in sizes.split(",") if size]
                layout.append([name, datatype, shape, len(body)])
                bodies.append(body)
        body = bodies[0] if len(bodies) == 1 else b"".join(bodies)
        return Chunk(body, headers={LAYOUT: json.dumps(layout)})

    async def _take(
        self,
        step: Step,
        waits: list[asyncio.Task[None]],
        tensors: Tensors,
        request: InferenceRequest,
    ) -> None:
        """Runs a step once its tensors are there; a failure of those before ends all."""
        if waits:
            await asyncio.wait(waits)
        parts, bodies = [], []
        for name, source in step.inputs.items():
            if source in tensors:  # an optional input may be absent
                part, body = tensors[source]
                parts.append(Part(name, part.size, part.content_type))
                bodies.append(body)
        try:
            chunk = await self._ask(step, parts, bodies, request)
        except ServeError as error:
            raise StepFailed(self.name, step.model, error.status, error.message) from None
        self._keep(step, chunk, tensors)

    async def _ask(
        self, step: Step, parts: list[Part], bodies: list[Buffer], request: InferenceRequest
    ) -> Chunk:
        model = self.find(step.model, step.version or None)
        left_s = request.deadline - time.monotonic()
        if left_s <= 0:
            raise DeadlineExceeded("there is no time left for it")
        headers = {name: value for name, value in request.headers.items() if name != WANTED}
        stream = ChunkStream()
        asked = InferenceRequest(
            new_request_id(),
            "predict",
            headers,
            parts,
            bodies,
            stream,
            left_s,
            bool(step.version),
            rows=_rows(model, parts),
            priority=request.priority,
        )
        try:
            model.submit(asked)
            first = await anext(stream)
            if first.failure is not None or not 200 <= first.status < 300:
                raise _Refused(first)
            if not first.last and (await anext(stream)).headers.get(LAYOUT) != NOTHING:
                raise InternalError("it sends several answers, which an ensemble cannot carry")
            return first
        finally:
            if not asked.answered:
                asked.cancel()

    def _keep(self, step: Step, chunk: Chunk, tensors: Tensors) -> None:
        layout = chunk.headers.get(LAYOUT)
        found: Tensors = {}
        at, view = 0, memoryview(chunk.body)
        for name, datatype, shape, size, *_ in json.loads(layout or "[]"):
            kind = f"{MARK}{datatype} {','.join(map(str, shape))}"
            found[name] = Part(name, size, kind), view[at : at + size]
            at += size
        for name, target in step.outputs.items():
            if name not in found:
                there = ", ".join(found) or "none"
                text = f"it has not sent the output '{name}' (sent: {there})"
                raise StepFailed(self.name, step.model, 500, text)
            part, body = found[name]
            tensors[target] = Part(target, part.size, part.content_type), body


class _Refused(ServeError):
    """What a model answered in the place of tensors."""

    def __init__(self, chunk: Chunk) -> None:
        failure = chunk.failure or Failure("", f"it answered with status {chunk.status}")
        super().__init__(failure.message)
        self.status = chunk.status


def _first(failures: BaseExceptionGroup[ServeError]) -> ServeError:
    error: BaseException = failures
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error if isinstance(error, ServeError) else InternalError(str(error))


def _rows(model: Model, parts: list[Part]) -> int:
    """How much of a batch tensors fill: the first dimension, where that counts rows."""
    signature = model.archive.signature
    if signature is None or not signature.rows_max or not parts:
        return 1
    first = (parts[0].content_type or "").rpartition(" ")[2].partition(",")[0]
    return max(1, int(first)) if first.isdecimal() else 1
