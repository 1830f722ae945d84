"""Envelopes: bodies of other protocols around the rows that a handler reads.

body      the handler gets what stands under ``data`` or ``body``, without the dict around it
json      the ``instances`` of all requests in one batch, those of ``b64`` alone decoded; answers
          ``{"predictions": [...]}``
kserve    the same, nothing decoded; answers objects, with ``explanations`` in the place of
          ``predictions`` if asked
kservev2  the ``inputs`` of all requests, their ``data`` in the tensor's shape; answers outputs with
          names, datatypes and shapes
"""

from __future__ import annotations

import base64
import binascii
import json
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from marserve.archiver.errors import HandlerLoadError
from marserve.handlers.errors import RequestError
from marserve.handlers.named_tensors import named_tensor, tensor_name, tensor_values

Handle = Callable[[list[Any], Any], Any]


class BaseEnvelope:
    """Changes rows before a handler and results behind it; others derive from it.

    Args:
        handle_fn: The handler's entry point.
    """

    def __init__(self, handle_fn: Handle) -> None:
        self._handle_fn = handle_fn
        self.context: Any = None

    def handle(self, data: list[Any], context: Any) -> list[Any]:
        """Answers a batch through the handler; a description is none of an envelope's business.

        Args:
            data: One row a request.
            context: The context of this batch.
        """
        self.context = context
        if context.get_request_header(0, "describe") == "True":
            described: list[Any] = self._handle_fn(data, context)
            return described
        return self.format_output(self._handle_fn(self.parse_input(data), context))

    def parse_input(self, data: list[Any]) -> list[Any]:
        """Returns what the handler gets."""
        return data

    def format_output(self, data: list[Any]) -> list[Any]:
        """Returns one result a request."""
        return data


class BodyEnvelope(BaseEnvelope):
    """Takes off the dict around each body."""

    def parse_input(self, data: list[Any]) -> list[Any]:
        """Returns what stands under ``data`` or ``body`` of every row."""
        return [body_of(row) for row in data]


class SplittingEnvelope(BaseEnvelope):
    """Lays the items of all requests end to end, and cuts the results again.

    A request that is alone in its batch gets all results, however many there are.
    """

    def __init__(self, handle_fn: Handle) -> None:
        super().__init__(handle_fn)
        self._lengths: list[int] = []

    def parse_input(self, data: list[Any]) -> list[Any]:
        """Returns the items of all requests."""
        rows = [self.items(row) for row in data]
        self._lengths = [len(items) for items in rows]
        return [item for items in rows for item in items]

    def format_output(self, data: list[Any]) -> list[Any]:
        """Returns one answer a request.

        Raises:
            ValueError: If there is not one result an item, so that none can be told to be whose.
        """
        if len(self._lengths) == 1:
            return [self._answer(0, data)]
        if len(data) != sum(self._lengths):
            raise ValueError(
                f"the handler returned {len(data)} results for {sum(self._lengths)} items"
            )
        answers, at = [], 0
        for index, length in enumerate(self._lengths):
            answers.append(self._answer(index, data[at : at + length]))
            at += length
        return answers

    def items(self, row: Any) -> list[Any]:
        """Returns what one request asks to be answered.

        Raises:
            RequestError: If it asks for nothing.
        """
        instances = _object(body_of(row)).get("instances")
        if not isinstance(instances, list):
            raise RequestError('the request has no "instances": expected {"instances": [...]}')
        return instances

    def answer(self, index: int, results: list[Any]) -> Any:
        """Returns the answer of the request with this index from its results."""
        return {"predictions": results}

    def _answer(self, index: int, results: list[Any]) -> Any:
        """A handler refuses an item by an exception in its place; that refuses the request."""
        refusal = next((each for each in results if isinstance(each, BaseException)), None)
        return self.answer(index, results) if refusal is None else refusal


class JSONEnvelope(SplittingEnvelope):
    """Instances in, predictions out; the answer is a text."""

    def items(self, row: Any) -> list[Any]:
        """Returns the instances of one request, those of ``b64`` alone decoded."""
        return [_decoded(instance) for instance in super().items(row)]

    def answer(self, index: int, results: list[Any]) -> Any:
        """Returns ``{"predictions": [...]}`` as text."""
        return json.dumps({"predictions": results})


class KServeEnvelope(SplittingEnvelope):
    """The first protocol of KServe."""

    def answer(self, index: int, results: list[Any]) -> Any:
        """Returns an object of predictions or explanations."""
        explained = self.context.get_request_header(index, "explain") == "True"
        return {"explanations" if explained else "predictions": results}


class KServev2Envelope(SplittingEnvelope):
    """The second protocol of KServe (Open Inference)."""

    def __init__(self, handle_fn: Handle) -> None:
        super().__init__(handle_fn)
        self._ids: list[Any] = []
        self._names: list[list[str]] = []

    def parse_input(self, data: list[Any]) -> list[Any]:
        """Returns every input, its data in its shape; names go to ``context.input_names``."""
        self._ids = []
        self._names = []
        self.context.input_names = []
        return super().parse_input(data)

    def items(self, row: Any) -> list[Any]:
        """Returns a request's inputs, as they were sent but for the shape of ``data``.

        Raises:
            RequestError: If it has none, or one is not what it says to be.
        """
        body = _object(body_of(row))
        inputs = body.get("inputs")
        if not isinstance(inputs, list) or not inputs:
            raise RequestError('the request has no "inputs": expected a list of tensors')
        self._ids.append(body.get("id"))
        names = [tensor_name(tensor) for tensor in inputs]
        self._names.append(names)
        self.context.input_names += names
        return [{**tensor, "data": tensor_values(tensor)} for tensor in inputs]

    def answer(self, index: int, results: list[Any]) -> Any:
        """Returns the answer with one output a result, named as the input that it is for."""
        names = self._names[index]
        if len(names) != len(results):
            names = [f"output-{i}" for i in range(len(results))]
        return {
            "id": self._ids[index] or self.context.get_request_id(index) or str(uuid.uuid4()),
            "model_name": self.context.model_name,
            "model_version": (self.context.manifest.get("model") or {}).get("modelVersion"),
            "outputs": [named_tensor(*each) for each in zip(names, results, strict=True)],
        }


ENVELOPES: Mapping[str, type[BaseEnvelope]] = {
    "base": BaseEnvelope,
    "body": BodyEnvelope,
    "json": JSONEnvelope,
    "kserve": KServeEnvelope,
    "kservev2": KServev2Envelope,
}


def load_envelope(name: str, handle: Handle) -> Handle:
    """Returns a handler's entry point inside an envelope.

    Args:
        name: As in ``service_envelope``.
        handle: The handler's entry point.

    Raises:
        HandlerLoadError: If there is no envelope of that name.
    """
    if name not in ENVELOPES:
        known = ", ".join(ENVELOPES)
        raise HandlerLoadError(f"service_envelope: there is no {name!r}; there are: {known}")
    return ENVELOPES[name](handle).handle


def body_of(row: Any) -> Any:
    """Returns what stands under ``data`` or ``body`` of a row."""
    value = row.get("data")
    return row.get("body") if value is None else value


def _object(body: Any) -> dict[str, Any]:
    """A body without a content type comes unparsed."""
    if isinstance(body, (bytes, bytearray, str)):
        try:
            body = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise RequestError(f"the request is no JSON: {error}") from None
    if not isinstance(body, dict):
        raise RequestError(f"expected a JSON object, got {type(body).__name__}")
    return body


def _decoded(instance: Any) -> Any:
    """An object with nothing but ``b64`` stands for bytes."""
    if not isinstance(instance, dict) or instance.keys() != {"b64"}:
        return instance
    try:
        return base64.b64decode(instance["b64"], validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise RequestError(f'"b64" holds no base64: {error}') from None
