"""One batch through a handler: every request gets its own result or its own error.

When a batch as a whole fails, its members are run one by one, so that a bad request fails alone and
the others get the answer they would have got without it.
"""

from __future__ import annotations

import io
import json
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

from marserve.archiver.tensor_marks import ANSWERED, LAYOUT, MARK
from marserve.handlers.context import Context, RequestProcessor
from marserve.handlers.errors import RequestError
from marserve.handlers.inputs import decode_value
from marserve.handlers.tensors import TensorAnswer, encode_outputs
from marserve.worker import indented_json
from marserve.worker.loader import Handle
from marserve.worker.redaction import plain, without_paths
from marserve.worker.stages import ENCODE, Spans
from marserve.worker.wire import Buffer, Failure, Reply, Request

Answer = tuple[Reply, Buffer]
Emit = Callable[[Reply, Buffer], None]
_ALIGNED = 8  # bytes of the largest element of a tensor
_MESSAGE_LIMIT = 2000
_TRACEBACK_LIMIT = 16_000


class ResultError(Exception):
    """The handler returned something that is not one result a request."""


class CallersGone(BaseException):
    """Raised into a handler that streams to nobody; no Exception, so that no handler keeps it."""


class Executor:
    """Runs batches through one loaded handler.

    Args:
        handle: The handler's entry point.
        context: The handler's context, reused from batch to batch.
        decode: Whether bodies are parsed by their content type.
        max_response_bytes: Largest body of one answer.
        emit: Sends an intermediate chunk of an answer at once.
        rerun: Whether the requests of a batch that failed run one by one. Where other processes
            compute parts of the same model, one that begins anew alone would get wrong answers.
        tracebacks: Whether failures carry the handler's traceback.
        spans: Gets the time that each batch's results took to become bytes.
    """

    def __init__(
        self,
        handle: Handle,
        context: Context,
        emit: Emit,
        decode: bool = True,
        max_response_bytes: int = 1 << 40,
        rerun: bool = True,
        tracebacks: bool = False,
        spans: Spans | None = None,
    ) -> None:
        self._handle = handle
        self._context = context
        self._emit = emit
        self._decode = decode
        self._max_response_bytes = max_response_bytes
        self._rerun = rerun
        self._tracebacks = tracebacks
        self._spans: Spans = [] if spans is None else spans
        self._streamed: set[str] = set()
        self._batch: list[Request] = []

    def run(self, requests: list[Request], body: bytearray) -> list[Answer]:
        """Returns the last chunk of every request's answer, in the batch's order.

        Args:
            requests: The batch; all of one command.
            body: Bytes of all parts of all requests, end to end.
        """
        rows = self.rows(requests, body)
        self._streamed.clear()
        try:
            return self._attempt(requests, rows)
        except BaseException as error:
            lost = isinstance(error, (ResultError, CallersGone)) or not self._rerun
            if len(requests) == 1 or lost:
                return [self._failed(r, error) for r in requests]
            _log(error, f"batch of {len(requests)} failed; its requests run one by one")
        rows = self.rows(requests, body)  # anew: the handler may have changed what it was given
        return [self._alone(r, row) for r, row in zip(requests, rows, strict=True)]

    def _alone(self, request: Request, row: dict[str, Any]) -> Answer:
        if request.id in self._streamed:
            return self._failed(request, RuntimeError("the batch failed while it was streaming"))
        try:
            return self._attempt([request], [row])[0]
        except BaseException as error:
            return self._failed(request, error)

    def begin(self, requests: list[Request]) -> None:
        """Makes these the batch that the context speaks of."""
        self._batch = requests
        headers = [_headers(r) for r in requests]
        ids = [r.id for r in requests]
        self._context.begin(ids, headers, self._stream)
        if self._context.metrics is not None:
            self._context.metrics.set_request_ids(",".join(ids))

    def answers(self, results: Any) -> list[Answer]:
        """Returns the last chunk of each answer of the batch begun.

        Raises:
            ResultError: If there is not one result a request.
        """
        _check(results, len(self._batch))
        processors = self._context.request_processor
        begin = time.perf_counter()
        answers = [
            self._answer(request, result, processor)
            for request, result, processor in zip(self._batch, results, processors, strict=True)
        ]
        self._spans.append((ENCODE, time.perf_counter() - begin))
        return answers

    def failure(self, request: Request, error: BaseException) -> Answer:
        """Returns the answer to a request for which the handler raised; the log gets the cause."""
        return self._failed(request, error)

    def _attempt(self, requests: list[Request], rows: list[dict[str, Any]]) -> list[Answer]:
        self.begin(requests)
        return self.answers(self._handle(rows, self._context))

    def rows(self, requests: list[Request], body: bytearray) -> list[dict[str, Any]]:
        """Returns what the handler gets: one dict of decoded parts a request."""
        if len(requests) == 1 and len(requests[0].parts) == 1:  # the whole body, uncopied
            part = requests[0].parts[0]
            return [{part.name: decode_value(part.content_type, body, self._decode)}]
        rows, at, view = [], 0, memoryview(body)
        for request in requests:
            row = {}
            for part in request.parts:
                # Arrays stand where their bytes came; other values are the handler's own.
                in_place = (part.content_type or "").startswith(MARK) and at % _ALIGNED == 0
                piece = (view if in_place else body)[at : at + part.size]
                row[part.name] = decode_value(part.content_type, piece, self._decode)
                at += part.size
            rows.append(row)
        return rows

    def _answer(self, request: Request, result: Any, processor: RequestProcessor) -> Answer:
        if isinstance(result, BaseException):
            return self._failed(request, result)
        try:
            data = _encoded(request, result, processor)
        except (TypeError, ValueError, RecursionError) as error:
            _log(error, "a result cannot be encoded")
            kind = type(result).__name__
            return _failure(request, 500, "output", f"Unsupported model output data type: {kind}.")
        if len(data) > self._max_response_bytes:
            return _failure(
                request,
                500,
                "response_size",
                f"The response of {len(data)} bytes exceeds max_response_size"
                f" ({self._max_response_bytes} bytes).",
            )
        try:
            return _reply(request, processor, data, last=True), data
        except (TypeError, ValueError, OverflowError) as error:
            message = f"The handler set a status that is no number: {error}"
            return _failure(request, 500, "output", message)

    def _stream(self, index: int, value: object) -> None:
        """Sends a piece of an answer before the handler returns."""
        request, processor = self._batch[index], self._context.request_processor[index]
        if isinstance(value, BaseException):
            raise value
        data = _encoded(request, value, processor)
        self._streamed.add(request.id)
        self._emit(_reply(request, processor, data, last=False), data)

    def _failed(self, request: Request, error: BaseException) -> Answer:
        if isinstance(error, RequestError):
            status = error.status if isinstance(error.status, int) else 500
            return _failure(request, status, "prediction", error.message)
        if isinstance(error, ResultError):
            return _failure(request, 500, "result", str(error))
        if isinstance(error, CallersGone):
            return _failure(request, 499, "cancelled", "The caller went away.")
        _log(error, f"request {request.id} failed")
        trace = _traceback(error) if self._tracebacks else ""
        if out_of_memory(error):
            message = f"Out of resources: {self._describe(error)}"
            return _failure(request, 507, "memory", message, trace)
        if isinstance(error, SystemExit):
            message = f"Prediction failed: the handler called sys.exit({error.code!r})"
        else:
            message = f"Prediction failed: {self._describe(error)}"
        return _failure(request, 500, "handler", message, trace)

    def _describe(self, error: BaseException) -> str:
        """For the client: the log alone says where files are."""
        model_dir = self._context.system_properties["model_dir"]
        text = without_paths(str(error), model_dir)
        return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _encoded(request: Request, result: Any, processor: RequestProcessor) -> Buffer:
    """A request of tensors is answered by tensors; a header says which."""
    parts = request.parts
    if not parts or not (parts[0].content_type or "").startswith(MARK):
        return encode_result(result)
    layout, data = encode_outputs(result)
    processor.add_response_property(LAYOUT, layout)
    processor.get_response_headers().pop(ANSWERED, None)  # of an earlier piece
    if isinstance(result, TensorAnswer) and result.parameters:
        processor.add_response_property(ANSWERED, json.dumps(dict(result.parameters)))
    return data


def encode_result(result: Any) -> Buffer:
    """Returns the bytes of one result: bytes and text as they are, a tensor saved, else JSON.

    Raises:
        TypeError: If JSON has no form for it.
        ValueError: If it refers to itself.
    """
    if isinstance(result, (bytes, bytearray)):
        return result
    if isinstance(result, memoryview):
        return bytes(result)
    if isinstance(result, str):
        return result.encode()
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(result, torch.Tensor):
        stream = io.BytesIO()
        torch.save(result, stream)
        return stream.getvalue()
    return indented_json.dumps(result).encode()


def out_of_memory(error: BaseException) -> bool:
    """Tells whether memory ran out, on the host or on a device."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    # Some CUDA calls report it as a plain RuntimeError; its text is all there is to tell by.
    return isinstance(error, RuntimeError) and "out of memory" in str(error)


def _headers(request: Request) -> dict[str, str]:
    """A handler tells an explanation from a prediction by a header, as it always has."""
    if request.command == "describe":
        return {**request.headers, "describe": "True"}
    return {**request.headers, "explain": "True" if request.command == "explain" else "False"}


def _reply(request: Request, processor: RequestProcessor, data: Buffer, last: bool) -> Reply:
    """Handlers may set anything; what is no text or number here would break the wire."""
    headers, phrase = processor.get_response_headers(), processor.get_response_status_phrase()
    return Reply(
        request.id,
        _number(processor.get_response_status_code()),
        len(data),
        last,
        plain(phrase) if phrase else "",
        {plain(name): plain(value) for name, value in headers.items()} if headers else {},
    )


def _number(status: Any) -> int:
    number = int(status)
    if not 0 <= number < 1000:
        raise ValueError(f"{status!r:.50}")
    return number


def _check(results: Any, count: int) -> None:
    if not isinstance(results, (list, tuple)):
        raise ResultError(
            f"Invalid model predict output: the handler returned {type(results).__name__},"
            f" expected a list of {count}, one item a request."
        )
    if len(results) != count:
        raise ResultError(
            f"number of batch response mismatched: the handler returned {len(results)} results"
            f" for {count} requests."
        )


def _failure(request: Request, status: int, kind: str, message: str, traceback: str = "") -> Answer:
    failure = Failure(kind, plain(message)[:_MESSAGE_LIMIT], traceback)
    return Reply(request.id, status, failure=failure), b""


def _traceback(error: BaseException) -> str:
    """Its end: that is where the error was raised, and a deep recursion has no other bound."""
    return plain("".join(traceback.format_exception(error)))[-_TRACEBACK_LIMIT:]


def _log(error: BaseException, what: str) -> None:
    """The worker's stderr is the model log; the traceback belongs there and nowhere else."""
    print(f"{what}:\n{''.join(traceback.format_exception(error))}", file=sys.stderr, flush=True)
