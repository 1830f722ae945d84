"""What the server answers when it cannot give a result: the one table of statuses and type names.

ServeError(status, type)             every error that has an answer; the type names are TorchServe's
├── BadRequest                400    a parameter is missing or wrong
├── InvalidKey                400    token missing, wrong or expired
├── InvalidModel              400    an archive is broken, or its dependencies cannot be installed
├── DownloadFailed            400    an archive cannot be fetched
├── VersionInUse              403    the default version cannot be removed
├── InvalidWorkflow           400    a workflow's archive is broken, or its specification wrong
├── ModelNotFound             404
├── WorkflowNotFound          404
├── VersionNotFound           404
├── ResourceNotFound          404    no such route
├── MethodNotAllowed          405
├── CleanupTimeout            408    unregistering took too long
├── Conflict                  409    the version is already registered
├── TooLarge                  413    a body exceeds max_request_size
├── InternalError             500    a worker or handler failed
├── WorkflowFailed            500    nodes of a workflow cannot be registered
├── ServiceUnavailable        503    no worker, or the queue is full
├── DeadlineExceeded          504    no result in time
└── OutOfResources            507    memory ran out
"""

from __future__ import annotations

from marserve.archiver.errors import MarserveError
from marserve.frontend.types import Chunk
from marserve.worker.wire import Failure


class ServeError(MarserveError):
    """An error with a status and a type; its text goes to the client: no path, no traceback.

    Args:
        message: What was wrong, and what would be right.
        retry_after_s: Sent as ``Retry-After`` if given.
    """

    status = 500
    type = "InternalServerException"

    def __init__(self, message: str, *, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after_s = retry_after_s

    def chunk(self) -> Chunk:
        """Returns the error as the last chunk of an answer."""
        headers = {} if self.retry_after_s is None else {"Retry-After": str(self.retry_after_s)}
        failure = Failure(self.type, self.message)
        return Chunk(b"", self.status, headers=headers, failure=failure)


class BadRequest(ServeError):
    """A parameter is missing or wrong."""

    status = 400
    type = "BadRequestException"


class InvalidKey(ServeError):
    """A token is missing, wrong or expired."""

    status = 400
    type = "InvalidKeyException"


class InvalidModel(ServeError):
    """An archive is broken, or its dependencies cannot be installed."""

    status = 400
    type = "InvalidModelException"


class DownloadFailed(ServeError):
    """An archive cannot be fetched."""

    status = 400
    type = "DownloadArchiveException"


class VersionInUse(ServeError):
    """The default version cannot be removed while others exist."""

    status = 403
    type = "InvalidModelVersionException"


class ModelNotFound(ServeError):
    """No such model."""

    status = 404
    type = "ModelNotFoundException"


class InvalidWorkflow(ServeError):
    """A workflow's archive is broken, or its specification is wrong."""

    status = 400
    type = "InvalidWorkflowException"


class WorkflowNotFound(ServeError):
    """No such workflow."""

    status = 404
    type = "WorkflowNotFoundException"


class WorkflowFailed(ServeError):
    """Nodes of a workflow cannot be registered."""

    status = 500
    type = "WorkflowException"


class VersionNotFound(ServeError):
    """The model has no such version."""

    status = 404
    type = "ModelVersionNotFoundException"


class ResourceNotFound(ServeError):
    """No such route."""

    status = 404
    type = "ResourceNotFoundException"

    def __init__(self, message: str = "") -> None:
        super().__init__(
            message or "Requested resource is not found, please refer to API document."
        )


class MethodNotAllowed(ServeError):
    """The route exists, but not with this method, or the operation is switched off."""

    status = 405
    type = "MethodNotAllowedException"

    def __init__(self, message: str = "") -> None:
        super().__init__(
            message or "Requested method is not allowed, please refer to API document."
        )


class CleanupTimeout(ServeError):
    """Workers did not end in time."""

    status = 408
    type = "RequestTimeoutException"


class Conflict(ServeError):
    """The version is already registered."""

    status = 409
    type = "ConflictStatusException"


class TooLarge(ServeError):
    """A body exceeds a limit."""

    status = 413
    type = "PayloadTooLargeException"


class InternalError(ServeError):
    """A worker or handler failed."""

    @classmethod
    def of_request(cls, id: str) -> InternalError:
        """Returns what a client is told of a mistake of our own; the log says more."""
        return cls(f"The server failed on this request; see its log for request {id}.")


class ServiceUnavailable(ServeError):
    """No worker, or no place in the queue; trying again may help."""

    status = 503
    type = "ServiceUnavailableException"


class DeadlineExceeded(ServeError):
    """No result before the deadline."""

    status = 504
    type = "RequestTimeoutException"


class OutOfResources(ServeError):
    """Memory ran out, on the host or the device."""

    status = 507
