"""Triton's decoupled Python models: any number of answers to a request, whenever they come."""

from __future__ import annotations

import asyncio
import inspect
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from marserve.archiver.errors import HandlerLoadError
from marserve.handlers.tensors import NO_TENSORS
from marserve.handlers.triton.messages import InferenceRequest, InferenceResponse, ResponseSender
from marserve.handlers.triton.python_model import PythonModel
from marserve.handlers.triton.rows import result_of
from marserve.handlers.triton.warm_up import warm_up


class TritonDecoupled:
    """Hands each request to ``execute``, and waits for its last answer while others are handed."""

    def initialize(self, context: Any) -> None:
        """Loads the model and warms it up."""
        self._model = PythonModel(context)
        # ``execute`` is called by one thread, a request after the other, as Triton does it.
        self._thread = ThreadPoolExecutor(1, "execute")
        self._loop: asyncio.AbstractEventLoop | None = None
        warm_up(self._model.config, self._model.folder, self._warm)

    async def handle(self, rows: list[Any], context: Any) -> list[Any]:
        """Returns the last answer to the one request; those before are sent as they come."""
        request = self._model.request(rows[0], context.get_all_request_header(0))
        shapes = self._model.shapes
        answers = _Answers(lambda response: context.emit(0, result_of(response, shapes)))
        request.sender = answers.sender
        try:
            await asyncio.wrap_future(self._thread.submit(self._execute, request))
            last = await answers.last
        except asyncio.CancelledError:
            answers.cancelled = True
            raise
        return [NO_TENSORS if last is None else result_of(last, shapes)]

    def close(self) -> None:
        """Called when the worker ends."""
        self._model.finalize()

    def _execute(self, request: InferenceRequest) -> None:
        returned = self._model.execute([request])
        if inspect.isawaitable(returned):
            asyncio.run_coroutine_threadsafe(_awaited(returned), self._own_loop()).result()
        elif returned is not None:
            raise RuntimeError("execute of a decoupled model returns nothing: senders answer")

    def _own_loop(self) -> asyncio.AbstractEventLoop:
        """Coroutines of the model have an event loop of their own, which outlives each call."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._loop.run_forever, daemon=True).start()
        return self._loop

    def _warm(self, row: dict[str, Any]) -> None:
        request = self._model.request(row, {})
        ended = threading.Event()
        errors: list[str] = []

        def take(response: InferenceResponse | None, final: bool) -> None:
            if response is not None and response.has_error():
                errors.append(str(response.error()))
            if final:
                ended.set()

        request.sender = ResponseSender(take, lambda: False)
        self._execute(request)
        ended.wait()
        if errors:
            raise HandlerLoadError(f"model_warmup: {errors[0]}")


async def _awaited(value: Any) -> Any:
    return await value


class _Answers:
    """The answers to one request, sent from any thread."""

    def __init__(self, emit: Any) -> None:
        self._loop = asyncio.get_running_loop()
        self._emit = emit
        self.last: asyncio.Future[InferenceResponse | None] = self._loop.create_future()
        self.cancelled = False
        self.sender = ResponseSender(self._take, lambda: self.cancelled)

    def _take(self, response: InferenceResponse | None, final: bool) -> None:
        self._loop.call_soon_threadsafe(self._taken, response, final)

    def _taken(self, response: InferenceResponse | None, final: bool) -> None:
        if self.last.done():
            return
        if final:
            self.last.set_result(response)
        elif response is not None:
            if response.has_error():  # no answer can follow it
                self.last.set_result(response)
            else:
                self._emit(response)
