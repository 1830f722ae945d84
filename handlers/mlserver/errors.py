"""``mlserver.errors``: what runtimes raise to answer a request with a status of their own."""

from __future__ import annotations

from marserve.handlers.errors import RequestError


class MLServerError(RequestError):
    """An error with an HTTP status; a client reads its text.

    Args:
        msg: For the client.
        status_code: Of the answer.
    """

    def __init__(self, msg: str, status_code: int = 400) -> None:
        super().__init__(msg, status_code)
        self.status_code = status_code


class InferenceError(MLServerError):
    """The model cannot answer this request."""

    def __init__(self, msg: str) -> None:
        super().__init__(msg)


class ModelNotFound(MLServerError):
    """There is no such model."""

    def __init__(self, name: str, version: str | None = None) -> None:
        super().__init__(f"{_named(name, version)} not found", 404)


class ModelNotReady(MLServerError):
    """The model does not serve yet."""

    def __init__(self, name: str, version: str | None = None) -> None:
        super().__init__(f"{_named(name, version)} is not ready yet.")


class InvalidModelURI(MLServerError):
    """There is nothing where the model should be."""

    def __init__(self, name: str, model_uri: str | None = None) -> None:
        where = f" ({model_uri})" if model_uri else ""
        super().__init__(f"Invalid URI specified for model {name}{where}", 422)


class ModelParametersMissing(MLServerError):
    """The runtime needs parameters that the settings do not have."""

    def __init__(self, model_name: str) -> None:
        super().__init__(f"Parameters missing for model {model_name}")


class CodecError(MLServerError):
    """A payload cannot be read, or written, as its content type asks."""

    def __init__(self, msg: str) -> None:
        super().__init__(f"There was an error encoding / decoding the payload: {msg}")


class CodecNotFound(MLServerError):
    """Nothing can read, or write, a payload.

    Args:
        name: Of the field.
        payload_type: What was to be written, or the type that was asked for.
        is_input: Whether it is an input.
        is_request: Whether it is the whole request.
    """

    def __init__(
        self,
        name: str | None = None,
        payload_type: str | None = None,
        is_input: bool = False,
        is_request: bool = False,
    ) -> None:
        side = "input" if is_input else "output"
        field = ("request" if is_input else "response") if is_request else "field"
        named = f" with name '{name}'" if name else ""
        typed = f"{' and' if name else ' with'} type {payload_type}" if payload_type else ""
        super().__init__(f"Codec not found for {side} {field}{named}{typed}")


def _named(name: str, version: str | None) -> str:
    return f"Model {name} with version {version}" if version else f"Model {name}"
