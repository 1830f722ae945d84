"""How a running model asks other models of the server, and about them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from marserve.archiver.tensor_marks import ANSWERED, ID, LAYOUT, MARK, PARAMETERS, STREAM, WANTED
from marserve.handlers.asking import Ask, NobodyToAsk, Piece, Question, ask_nobody
from marserve.handlers.tensors import decode_tensor, encode_outputs
from marserve.handlers.triton.errors import TritonModelException, from_status
from marserve.handlers.triton.messages import (
    SEQUENCE_END,
    SEQUENCE_START,
    InferenceRequest,
    InferenceResponse,
)
from marserve.handlers.triton.tensors import Tensor


def asker(ask: Ask) -> Callable[[InferenceRequest, bool], Iterator[InferenceResponse]]:
    """Returns what ``InferenceRequest.exec`` calls.

    Args:
        ask: Of the worker.
    """

    def call(request: InferenceRequest, decoupled: bool) -> Iterator[InferenceResponse]:
        try:
            for piece in ask(_question(request, decoupled)):
                if (response := _response(piece)) is not None:
                    yield response
        except NobodyToAsk as error:
            raise TritonModelException(str(error)) from None

    return call


def _question(request: InferenceRequest, decoupled: bool) -> Question:
    arrays = {each.name(): each.as_numpy() for each in request.inputs()}
    layout, data = encode_outputs(arrays)
    parts, at, view = [], 0, memoryview(data)
    for name, datatype, shape, size, *_ in json.loads(layout):
        kind = f"{MARK}{datatype} {','.join(map(str, shape))}"
        parts.append((name, kind, view[at : at + size]))
        at += size
    parameters = json.loads(request.parameters())
    if request.correlation_id():
        parameters |= {
            "sequence_id": request.correlation_id(),
            "sequence_start": bool(request.flags() & SEQUENCE_START),
            "sequence_end": bool(request.flags() & SEQUENCE_END),
        }
    headers = {PARAMETERS: json.dumps(parameters)}
    if decoupled:
        headers[STREAM] = "1"
    if request.request_id():
        headers[ID] = request.request_id()
    if request.requested_output_names():
        headers[WANTED] = json.dumps(request.requested_output_names())
    version = request.model_version()
    return Question(
        "predict",
        request.model_name(),
        "" if version == -1 else str(version),
        parts,
        headers,
        request.timeout() / 1e6 or None,
    )


def _response(piece: Piece) -> InferenceResponse | None:
    """Returns what a piece of an answer holds; None if it only ends the answer."""
    if piece.failure or not 200 <= piece.status < 300:
        text = piece.failure or f"it answered with status {piece.status}"
        return InferenceResponse(error=from_status(piece.status, text))
    layout = piece.headers.get(LAYOUT)
    if layout is None:
        return InferenceResponse(error=from_status(500, "it sent no tensors"))
    if not layout:
        return None
    tensors, at = [], 0
    for name, datatype, shape, size, *_ in json.loads(layout):
        kind = f"{MARK}{datatype} {','.join(map(str, shape))}"
        tensors.append(Tensor(name, decode_tensor(kind, bytearray(piece.body[at : at + size]))))
        at += size
    return InferenceResponse(tensors, parameters=json.loads(piece.headers.get(ANSWERED, "{}")))


class Repository:
    """The models of the server, as a running model may change them.

    Attributes:
        ask: Of the worker.
        folder: Of the version of the running model.
    """

    def __init__(self) -> None:
        self.ask: Ask = ask_nobody
        self.folder = Path()

    def is_ready(self, model_name: str, model_version: str = "") -> bool:
        """Tells whether a model can be asked."""
        pieces = list(self.ask(Question("ready", model_name, str(model_version))))
        return pieces[-1].status == 200

    def load(
        self, model_name: str, config: str | None = None, files: Mapping[str, Any] | None = None
    ) -> None:
        """Loads a model of the repository, or loads it anew.

        Args:
            model_name: Of the model.
            config: JSON, in the place of its config.pbtxt.
            files: Refused: files come from the repository alone.

        Raises:
            TritonModelException: If it cannot be loaded.
        """
        if files:
            raise TritonModelException("load_model: files come from the repository alone")
        self._change("load", model_name, {"config": config} if config else {})

    def unload(self, model_name: str, unload_dependents: bool = False) -> None:
        """Unloads a model.

        Args:
            model_name: Of the model.
            unload_dependents: Whether an ensemble goes with its steps.

        Raises:
            TritonModelException: If that cannot be done.
        """
        self._change("unload", model_name, {"dependents": "1"} if unload_dependents else {})

    def _change(self, command: str, name: str, how: dict[str, str]) -> None:
        last = list(self.ask(Question(command, name, headers=how)))[-1]
        if last.failure:
            raise TritonModelException(last.failure)


repository = Repository()
