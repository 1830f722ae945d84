"""The handler of MLServer's model folders: loads the runtime's class and hands requests to it."""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from marserve.archiver.errors import HandlerLoadError
from marserve.archiver.mlserver_folder import SECTION
from marserve.archiver.mlserver_settings import MODEL_FILE
from marserve.archiver.tensor_marks import STREAM
from marserve.handlers.errors import RequestError
from marserve.handlers.mlserver import batches, messages, metrics
from marserve.handlers.mlserver.model import MLModel
from marserve.handlers.mlserver.records import ValidationError
from marserve.handlers.mlserver.routes import routes_of
from marserve.handlers.mlserver.settings import ModelSettings
from marserve.handlers.mlserver.types import InferenceRequest, InferenceResponse
from marserve.handlers.mlserver.uris import generate_uuid
from marserve.handlers.tensors import NO_TENSORS, TensorAnswer

_log = logging.getLogger(__name__)
_BUILTIN = {
    "mlserver_huggingface.HuggingFaceRuntime": (
        "marserve.handlers.mlserver.huggingface.runtime.HuggingFaceRuntime"
    ),
}


class MLServerRuntime:
    """Serves one model whose class derives from ``mlserver.MLModel``."""

    _model: Any
    _most_rows: int
    _streams: bool

    async def initialize(self, context: Any) -> None:
        """Makes the runtime and has it load its model.

        Raises:
            HandlerLoadError: If there is no such class, or the model says that it does not serve.
        """
        directory = Path(context.system_properties["model_dir"])
        raw = dict(context.model_yaml_config[SECTION])
        raw["name"] = context.model_name
        try:
            settings = ModelSettings(**raw)
        except ValidationError as error:
            raise HandlerLoadError(f"{MODEL_FILE}: {error}") from error
        settings._source = str(directory / MODEL_FILE)
        metrics.connect(context.metrics)
        kind = find_class(settings.implementation_)
        self._streams = getattr(kind, "predict_stream", None) is not MLModel.predict_stream
        self._most_rows = context.system_properties["batch_size"] or 1
        self._model = kind(settings)
        self._model._context = context
        for method, path, name in routes_of(self._model):
            _log.warning(
                "%s.%s: routes of a model, %s %s, are not served", kind, name, method, path
            )
        ready = await self._model.load()
        if ready is False:
            raise HandlerLoadError(f"{settings.implementation_}: load() returned False")
        self._model.ready = True

    async def handle(self, data: list[dict[str, Any]], context: Any) -> list[Any]:
        """Answers the requests of a batch, each for itself where one fails."""
        asked: list[Any] = [self._read(row, context, at) for at, row in enumerate(data)]
        results: list[Any] = [each if isinstance(each, Exception) else None for each in asked]
        whole = []
        for at, request in enumerate(asked):
            if results[at] is None and self._streams and STREAM in _headers(context, at):
                results[at] = await self._stream(request, context, at)
            elif results[at] is None:
                whole.append(at)
        together = getattr(self._model, "predict_together", self._together)
        answers = await together([asked[at] for at in whole]) if whole else []
        for at, answer in zip(whole, answers, strict=True):
            results[at] = self._written(asked[at], answer, data[at])
        return results

    def close(self) -> None:
        """Has the runtime unload its model."""
        asyncio.run(self._model.unload())

    def _read(self, row: dict[str, Any], context: Any, at: int) -> InferenceRequest | Exception:
        headers = _headers(context, at)
        try:
            if messages.holds_tensors(row):
                request = messages.from_tensors(row, headers)
                request.id = request.id or context.get_request_id(at) or generate_uuid()
                return request
            value = row.get("body", row.get("data")) if len(row) == 1 else row
            if isinstance(value, (bytes, bytearray, str)):
                value = _parsed(value)
            if isinstance(value, dict) and isinstance(value.get("inputs"), list):
                return messages.from_json(value, headers)
            plain = getattr(self._model, "from_body", None)
            if plain is None:
                text = 'expected a V2 inference request, {"inputs": [{"name": ...}]}'
                return RequestError(text)
            found: InferenceRequest = plain(value)
            return found
        except RequestError as error:
            return error

    async def _together(self, requests: Sequence[InferenceRequest]) -> list[Any]:
        """Returns an answer, or the error in its place, for each request."""
        results: list[Any] = [None] * len(requests)
        if len(requests) == 1:
            return [await self._alone(requests[0])]
        parts = batches.groups(requests, self._most_rows)
        found = await asyncio.gather(*(self._group([requests[at] for at in p]) for p in parts))
        for part, answers in zip(parts, found, strict=True):
            for at, answer in zip(part, answers, strict=True):
                results[at] = answer
        return results

    async def _group(self, requests: list[InferenceRequest]) -> list[Any]:
        """One ``predict`` for all; where that fails, or gives other rows, one for each."""
        if len(requests) > 1:
            try:
                response = await self._model.predict(batches.joined(requests))
                answers = batches.cut(response, requests)
                if answers is not None:
                    return list(answers)
                _log.warning("outputs without a row for each input row: requests run one by one")
            except Exception as error:
                _log.warning("a batch failed, its requests run one by one: %r", error)
        return [await self._alone(each) for each in requests]

    async def _alone(self, request: InferenceRequest) -> Any:
        try:
            response = await self._model.predict(request)
        except NotImplementedError as error:
            return RequestError(f"{error or 'this model'}: ask it for a stream of answers", 501)
        except Exception as error:
            return error
        if not isinstance(response, InferenceResponse):
            kind = type(response).__name__
            return TypeError(f"predict returned {kind}, expected an InferenceResponse")
        return response

    async def _stream(self, request: InferenceRequest, context: Any, at: int) -> Any:
        """Sends each piece as it comes; what is returned ends the answer."""

        async def payloads() -> AsyncIterator[InferenceRequest]:
            yield request

        async for response in self._model.predict_stream(payloads()):
            context.emit(at, _answer(response))
        return NO_TENSORS

    def _written(self, request: InferenceRequest, answer: Any, row: dict[str, Any]) -> Any:
        if isinstance(answer, Exception):
            return answer
        try:
            if messages.holds_tensors(row):
                return _answer(answer)
            plain = getattr(self._model, "to_body", None)
            if plain is not None and getattr(request, "_from_body", False):
                return plain(answer)
            return messages.as_json(request, answer)
        except RequestError as error:
            return error


def find_class(path: str) -> Any:
    """Returns a runtime's class by its import path.

    Raises:
        HandlerLoadError: If there is none; naming what is missing.
    """
    module, _, name = _BUILTIN.get(path, path).rpartition(".")
    where = f"{MODEL_FILE}: $.implementation: {path!r}"
    try:
        found = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # a package that the runtime's own code needs
        text = f"there is no module {error.name}, neither beside the file nor installed"
        raise HandlerLoadError(f"{where}: {text}") from error
    except AttributeError as error:
        raise HandlerLoadError(f"{where}: {module} has no {name}") from error
    except ValueError as error:
        raise HandlerLoadError(f"{where}: expected module.Class") from error
    return found


def _answer(response: InferenceResponse) -> TensorAnswer:
    return TensorAnswer(
        messages.arrays(response),
        messages.plain(response.parameters),
        output_parameters=messages.parameters_of(response),
    )


def _headers(context: Any, at: int) -> dict[str, str]:
    found: dict[str, str] = context.get_all_request_header(at)
    return found


def _parsed(value: bytes | bytearray | str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value if isinstance(value, str) else bytes(value)
