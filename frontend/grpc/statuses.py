"""From the HTTP statuses of errors to the status codes of gRPC."""

from __future__ import annotations

from enum import IntEnum

from marserve.frontend.errors import InvalidKey, ServeError
from marserve.frontend.types import Chunk


class Status(IntEnum):
    """How a call ended, as it stands on the wire; the words are gRPC's."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


_CODES = {
    400: Status.INVALID_ARGUMENT,
    401: Status.UNAUTHENTICATED,
    403: Status.PERMISSION_DENIED,
    404: Status.NOT_FOUND,
    405: Status.PERMISSION_DENIED,
    408: Status.DEADLINE_EXCEEDED,
    409: Status.ABORTED,
    413: Status.RESOURCE_EXHAUSTED,
    416: Status.OUT_OF_RANGE,
    429: Status.RESOURCE_EXHAUSTED,
    499: Status.CANCELLED,
    501: Status.UNIMPLEMENTED,
    503: Status.UNAVAILABLE,
    504: Status.DEADLINE_EXCEEDED,
}

_TRACEBACK_LIMIT = 3000  # clients take 8 KiB of metadata, the status message included


def code_of(error: ServeError) -> Status:
    """Returns the status code of an error."""
    if isinstance(error, InvalidKey):
        return Status.PERMISSION_DENIED
    return code_of_status(error.status)


def code_of_status(status: int) -> Status:
    """Returns the status code that stands for an HTTP status from 400 on."""
    found = _CODES.get(status)
    if found is not None:
        return found
    return Status.FAILED_PRECONDITION if 400 <= status < 500 else Status.INTERNAL


class NoSuchMethod(ServeError):
    """No service of this address has the method, or it takes no messages of that kind."""

    status = 501
    type = "NotImplementedException"


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
