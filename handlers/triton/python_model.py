"""Triton's Python backend: hosts the class TritonPythonModel of a model.py."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import os
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from marserve.archiver.errors import HandlerLoadError
from marserve.archiver.tensor_marks import WANTED
from marserve.handlers.errors import RequestError
from marserve.handlers.tensors import TensorAnswer
from marserve.handlers.triton.calls import asker, repository
from marserve.handlers.triton.messages import (
    InferenceRequest,
    InferenceResponse,
    ResponseSender,
    running,
)
from marserve.handlers.triton.reporting import MetricFamily
from marserve.handlers.triton.rows import request_of, result_of
from marserve.handlers.triton.sequences import Sequences
from marserve.handlers.triton.shapes import Shapes
from marserve.handlers.triton.tensors import Tensor
from marserve.handlers.triton.warm_up import warm_up

KEY = "triton"
_CLASS = "TritonPythonModel"


class PythonModel:
    """A model.py, loaded: what both kinds of it have in common.

    Args:
        context: Of the worker.

    Raises:
        HandlerLoadError: If the file has no such class.
    """

    def __init__(self, context: Any) -> None:
        section = context.model_yaml_config[KEY]
        self.config: dict[str, Any] = section["config"]
        self.folder = Path(context.system_properties["model_dir"])
        self.shapes = Shapes(self.config)
        self._sequences = Sequences(self.config, self.folder)
        self._all_outputs = json.dumps([each["name"] for each in self.config.get("output", [])])
        self._identity = {
            "model_name": context.model_name,
            "model_version": int(section["version"]),
        }
        running.call = asker(context.ask)
        repository.ask = context.ask
        repository.folder = self.folder / section["version"]
        MetricFamily.metrics = context.metrics
        self._instance = load_class(self.folder, section["file"])()
        if hasattr(self._instance, "initialize"):
            self._instance.initialize(self._arguments(context, section))
        execute = getattr(self._instance, "execute", None)
        if not callable(execute):
            raise HandlerLoadError(f"{section['file']}: {_CLASS} has no method execute")
        self.execute: Callable[[list[InferenceRequest]], Any] = execute

    def request(self, row: Any, headers: dict[str, str]) -> InferenceRequest:
        """Returns the request of a row."""
        if WANTED not in headers:
            headers = {**headers, WANTED: self._all_outputs}
        request = request_of(row, headers, self.shapes, **self._identity)
        given = {each.name(): each.as_numpy() for each in request.inputs()}
        added = self._sequences.prepared(request, given)
        request.inputs()[:] = [Tensor(name, array) for name, array in added.items()]
        return request

    def result(self, request: InferenceRequest, response: Any) -> Any:
        """Returns what the worker sends for a response to a request."""
        found = result_of(response, self.shapes)
        if isinstance(found, TensorAnswer):
            outputs = self._sequences.finished(request, dict(found.outputs))
            return TensorAnswer(outputs, found.parameters)
        return found

    def finalize(self) -> None:
        """Lets the model end what it has begun."""
        if hasattr(self._instance, "finalize"):
            self._instance.finalize()

    def _arguments(self, context: Any, section: dict[str, Any]) -> dict[str, str]:
        """What ``initialize`` gets: texts alone."""
        gpu = context.system_properties.get("gpu_id")
        return {
            "model_config": json.dumps(self.config),
            "model_instance_kind": "CPU" if gpu is None else "GPU",
            "model_instance_name": f"{context.model_name}_0_{os.getpid()}",
            "model_instance_device_id": str(gpu or 0),
            "model_repository": str(self.folder),
            "model_version": section["version"],
            "model_name": context.model_name,
        }


def load_class(folder: Path, file: str) -> Any:
    """Imports a model's file and returns its class.

    Args:
        folder: Of the model.
        file: Below it, such as ``1/model.py``.

    Raises:
        HandlerLoadError: If the file has no such class.
        Exception: Whatever the file raises while it is imported.
    """
    version, _, name = file.partition("/")
    for each in (folder, folder / version):
        if str(each) not in sys.path:
            sys.path.append(str(each))
    module = importlib.import_module(f"{version}.{name.removesuffix('.py')}")
    found = getattr(module, _CLASS, None)
    if not inspect.isclass(found):
        raise HandlerLoadError(f"{file}: has no class {_CLASS}")
    return found


class TritonPython:
    """Answers a batch by one call of ``execute``."""

    def initialize(self, context: Any) -> None:
        """Loads the model and warms it up."""
        self._runner = asyncio.Runner()
        self._model = PythonModel(context)
        warm_up(self._model.config, self._model.folder, partial(self._warm, context))

    def handle(self, rows: list[Any], context: Any) -> list[Any]:
        """Returns one result a request; an error of one is no error of the others."""
        model = self._model
        requests: list[InferenceRequest] = []
        late: list[_Single] = []
        results: list[Any] = [None] * len(rows)
        places = []
        for index, row in enumerate(rows):
            try:
                request = model.request(row, context.get_all_request_header(index))
            except RequestError as error:
                results[index] = error
                continue
            single = _Single(partial(context.is_cancelled, index))
            request.sender = single.sender
            requests.append(request)
            late.append(single)
            places.append(index)
        responses = self._executed(requests) if requests else []
        every = zip(places, requests, responses, late, strict=True)
        for index, request, response, single in every:
            # A model may also answer by a sender; then it returns nothing for that request.
            found = single.wait() if response is None else response
            results[index] = model.result(request, found)
        return results

    def close(self) -> None:
        """Called when the worker ends."""
        self._model.finalize()

    def _executed(self, requests: list[InferenceRequest]) -> list[Any]:
        responses = self._model.execute(requests)
        if inspect.isawaitable(responses):
            responses = self._runner.run(_awaited(responses))
        if responses is None:
            return [None] * len(requests)
        if not isinstance(responses, (list, tuple)) or len(responses) != len(requests):
            count = len(responses) if isinstance(responses, (list, tuple)) else 0
            raise RuntimeError(f"execute returned {count} responses for {len(requests)} requests")
        return list(responses)

    def _warm(self, context: Any, row: dict[str, Any]) -> None:
        request = self._model.request(row, {})
        request.sender = _Single(lambda: False).sender
        for response in self._executed([request]):
            if response is not None and response.has_error():
                raise HandlerLoadError(f"model_warmup: {response.error().message()}")


async def _awaited(value: Any) -> Any:
    return await value


class _Single:
    """The one answer that a model sends by itself, in the place of returning it."""

    def __init__(self, is_cancelled: Callable[[], bool]) -> None:
        self._response: InferenceResponse | None = None
        self._ended = threading.Event()
        self.sender = ResponseSender(self._take, is_cancelled)

    def wait(self) -> InferenceResponse | RequestError:
        self._ended.wait()
        return self._response or RequestError("the model sent no response", 500)

    def _take(self, response: InferenceResponse | None, final: bool) -> None:
        if response is not None:
            if self._response is not None:
                raise RuntimeError("the model sends more than one response and is not decoupled")
            self._response = response
        if final:
            self._ended.set()
