"""From the HTTP statuses of errors to the status codes of gRPC."""

from __future__ import annotations

import grpc

from marserve.frontend.errors import InvalidKey, ServeError
from marserve.frontend.types import Chunk

_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    405: grpc.StatusCode.PERMISSION_DENIED,
    409: grpc.StatusCode.ABORTED,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    416: grpc.StatusCode.OUT_OF_RANGE,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    499: grpc.StatusCode.CANCELLED,
    501: grpc.StatusCode.UNIMPLEMENTED,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}

_TRACEBACK_LIMIT = 3000  # clients take 8 KiB of metadata, the status message included


def code_of(error: ServeError) -> grpc.StatusCode:
    """Returns the status code of an error."""
    if isinstance(error, InvalidKey):
        return grpc.StatusCode.PERMISSION_DENIED
    return code_of_status(error.status)


def code_of_status(status: int) -> grpc.StatusCode:
    """Returns the status code that stands for an HTTP status from 400 on."""
    found = _CODES.get(status)
    if found is not None:
        return found
    client = 400 <= status < 500
    return grpc.StatusCode.FAILED_PRECONDITION if client else grpc.StatusCode.INTERNAL


def number(code: grpc.StatusCode) -> int:
    """Returns a status code as it stands on the wire."""
    value: int = code.value[0]
    return value


class AnswerFailed(ServeError):
    """An answer that is an error, with the status it has over HTTP.

    Args:
        chunk: Has a failure.
    """

    def __init__(self, chunk: Chunk) -> None:
        failure = chunk.failure
        assert failure is not None  # noqa: S101  (the caller has looked)
        again = chunk.headers.get("Retry-After", "")
        text = failure.message
        if failure.traceback:  # the status message is the one text that every client shows
            trace = failure.traceback[-_TRACEBACK_LIMIT:]
            text += "\n" + trace.encode("ascii", "backslashreplace").decode()[-_TRACEBACK_LIMIT:]
        super().__init__(text, retry_after_s=int(again) if again.isdigit() else None)
        self.status = chunk.status
        self.type = failure.type
