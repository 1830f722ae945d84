"""Triton's ensembles: models whose requests the server itself leads through other models."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from marserve.archiver.triton_config import TritonConfig
from marserve.archiver.triton_ensemble import Step, read_steps
from marserve.archiver.triton_folder import ENSEMBLE_HANDLER, KEY
from marserve.frontend.api.http import new_request_id
from marserve.frontend.autoscaler import Autoscaler
from marserve.frontend.errors import BadRequest, DeadlineExceeded, InternalError, ServeError
from marserve.frontend.model import Model
from marserve.frontend.types import Chunk, InferenceRequest
from marserve.frontend.v2.inference import Call, infer
from marserve.frontend.v2.inside import chunk_of, infer_of, tensor_of
from marserve.frontend.v2.messages import Answer
from marserve.frontend.v2.tensors import Tensor

if TYPE_CHECKING:
    from marserve.frontend.api.exchange import Services

_log = logging.getLogger(__name__)

__all__ = ["ENSEMBLE_HANDLER", "Ensemble", "StepFailed"]

Tensors = dict[str, Tensor]
"""The tensors of an ensemble that are there already."""
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
        services: Returns what V2 inference works with.
    """

    find: Find
    services: Callable[[], Services]

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
        for part in request.parts:
            tensor_of(part, b"")  # refuses what is no tensor
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
        except Exception:
            _log.exception("ensemble %s failed", self.name)
            chunk = InternalError(f"in ensemble '{self.name}': it failed").chunk()
        metrics = self._by_version if request.pinned else self._by_default
        now = time.monotonic()
        metrics.observe(now - request.queued_at, 0.0)
        self.statistics.request(request, chunk.failure is not None, now)
        request.send(chunk)

    async def _run(self, request: InferenceRequest) -> Chunk:
        given = zip(request.parts, request.bodies, strict=True)
        tensors: Tensors = {part.name: tensor_of(part, body) for part, body in given}
        done: dict[str, asyncio.Task[None]] = {}
        try:
            async with asyncio.TaskGroup() as group:
                for step in self.steps:
                    waits = [done[name] for name in step.inputs.values() if name in done]
                    task = group.create_task(self._take(step, waits, tensors, request))
                    done |= dict.fromkeys(step.outputs.values(), task)
        except* ServeError as failures:
            raise _first(failures) from None
        outputs = [tensors[name] for name in self._outputs if name in tensors]
        return chunk_of(Answer(self.name, self.version, outputs, {}, {}))

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
        inputs = [  # an optional input may be absent
            replace(tensors[source], name=name)
            for name, source in step.inputs.items()
            if source in tensors
        ]
        try:
            answer = await self._ask(step, inputs, request)
        except ServeError as error:
            raise StepFailed(self.name, step.model, error.status, error.message) from None
        found = {each.name: each for each in answer.outputs}
        for name, target in step.outputs.items():
            if name not in found:
                there = ", ".join(found) or "none"
                text = f"it has not sent the output '{name}' (sent: {there})"
                raise StepFailed(self.name, step.model, 500, text)
            tensors[target] = replace(found[name], name=target)

    async def _ask(self, step: Step, inputs: list[Tensor], request: InferenceRequest) -> Answer:
        model = self.find(step.model, step.version or None)
        left_s = request.deadline - time.monotonic()
        if left_s <= 0:
            raise DeadlineExceeded("there is no time left for it")
        if not inputs:
            raise BadRequest("none of its inputs is in the request")
        asked = infer_of(inputs, request.headers)
        asked.outputs = []
        asked.parameters = {k: v for k, v in asked.parameters.items() if k != "timeout"}
        call = Call(request.headers, new_request_id(), left_s, bool(step.version))
        return await infer(self.services(), model, asked, call)


def _first(failures: BaseExceptionGroup[ServeError]) -> ServeError:
    error: BaseException = failures
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error if isinstance(error, ServeError) else InternalError(str(error))
