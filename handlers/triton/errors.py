"""Errors that a Triton model raises or sends, and the statuses that they become."""

from __future__ import annotations

from typing import ClassVar

from marserve.handlers.errors import RequestError

_STATUSES = {
    "UNKNOWN": 400,
    "INTERNAL": 500,
    "NOT_FOUND": 404,
    "INVALID_ARG": 400,
    "UNAVAILABLE": 503,
    "UNSUPPORTED": 501,
    "ALREADY_EXISTS": 400,
    "CANCELLED": 400,
}
_CODES = {404: "NOT_FOUND", 501: "UNSUPPORTED", 499: "CANCELLED", 503: "UNAVAILABLE"}


class TritonError(Exception):
    """What went wrong with one request.

    Args:
        message: For the client.
        code: One of the attributes in capitals.
    """

    UNKNOWN: ClassVar[str] = "UNKNOWN"
    INTERNAL: ClassVar[str] = "INTERNAL"
    NOT_FOUND: ClassVar[str] = "NOT_FOUND"
    INVALID_ARG: ClassVar[str] = "INVALID_ARG"
    UNAVAILABLE: ClassVar[str] = "UNAVAILABLE"
    UNSUPPORTED: ClassVar[str] = "UNSUPPORTED"
    ALREADY_EXISTS: ClassVar[str] = "ALREADY_EXISTS"
    CANCELLED: ClassVar[str] = "CANCELLED"

    def __init__(self, message: str = "", code: str = INTERNAL) -> None:
        super().__init__(str(message))
        self._message = str(message)
        self._code = code if code in _STATUSES else "INTERNAL"

    def message(self) -> str:
        """Returns the text."""
        return self._message

    def code(self) -> str:
        """Returns the code."""
        return self._code


class TritonModelException(Exception):
    """A failure that ``pb_utils`` raises, or that a model raises through it."""


def as_request_error(error: TritonError) -> RequestError:
    """Returns what the client of a request is told."""
    return RequestError(error.message(), _STATUSES[error.code()])


def from_status(status: int, message: str) -> TritonError:
    """Returns the error of a call to another model."""
    fallback = "INVALID_ARG" if 400 <= status < 500 else "INTERNAL"
    return TritonError(message, _CODES.get(status, fallback))
