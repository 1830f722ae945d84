"""What a handler may raise, or return in place of one result, to refuse a single request."""

from __future__ import annotations

from marserve.archiver.errors import MarserveError


class RequestError(MarserveError):
    """The request cannot be answered with a result; the text is sent to its caller.

    Raise it where the batch has one request, or put an instance into the list of results in the
    place of the request it belongs to: the others of the batch keep their results.

    Args:
        message: What was wrong with the request, and what would be right.
        status: HTTP status of the answer, 400 to 599.
    """

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.message = message
        self.status = status


class PredictionException(RequestError):
    """Like ``RequestError``, as handlers written for TorchServe raise it.

    Args:
        message: Sent to the caller.
        error_code: HTTP status of the answer.
    """

    def __init__(self, message: str, error_code: int = 500) -> None:
        super().__init__(message, error_code)
        self.error_code = error_code
