"""What a handler may know of its model and its requests, and how it shapes its responses."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from marserve.handlers.asking import Ask, ask_nobody

SERVER_NAME = "MMS"  # what handlers have always been told
SERVER_VERSION = "0.12.0"


class RequestProcessor:
    """One request's headers, and the status and headers of its response.

    Args:
        headers: The request's headers, exactly as spelt by the client.
    """

    __slots__ = ("_headers", "_phrase", "_response_headers", "_status")

    def __init__(self, headers: dict[str, str]) -> None:
        self._headers = headers
        self._status = 200
        self._phrase = ""
        self._response_headers: dict[str, str] = {}

    def get_request_property(self, key: str) -> str | None:
        """Returns a request header, or None."""
        return self._headers.get(key)

    def get_request_properties(self) -> dict[str, str]:
        """Returns all request headers."""
        return self._headers

    def report_status(self, code: int, reason_phrase: str | None = None) -> None:
        """Sets the HTTP status of the response."""
        self._status = code
        self._phrase = reason_phrase or ""

    def get_response_status_code(self) -> int:
        """Returns the HTTP status of the response."""
        return self._status

    def get_response_status_phrase(self) -> str:
        """Returns the reason phrase of the response, possibly empty."""
        return self._phrase

    def add_response_property(self, key: str, value: str) -> None:
        """Sets a response header."""
        self._response_headers[key] = value

    def get_response_headers(self) -> dict[str, str]:
        """Returns the response headers set so far."""
        return self._response_headers

    def get_response_header(self, key: str) -> str | None:
        """Returns a response header, or None."""
        return self._response_headers.get(key)


def _no_emit(index: int, value: object) -> None:
    raise RuntimeError("no request is being handled, so there is nobody to stream to")


class Context:
    """A handler's view of its model and of the batch at hand.

    Args:
        model_name: Name under which the model is registered.
        model_dir: Directory of the unpacked archive.
        manifest: The archive's manifest, with its JSON keys.
        batch_size: Largest number of requests in a batch.
        gpu_id: Device index, None on the CPU.
        limit_max_image_pixels: Whether PIL's limit on image size stays in force.
        metrics: Where the handler reports its own metrics.
        model_yaml_config: The whole of model-config.yaml.
    """

    def __init__(
        self,
        model_name: str,
        model_dir: str,
        manifest: dict[str, Any],
        batch_size: int = 1,
        gpu_id: int | None = None,
        limit_max_image_pixels: bool = True,
        metrics: Any = None,
        model_yaml_config: dict[str, Any] | None = None,
    ) -> None:
        self.model_name = model_name
        self.manifest = manifest
        self.metrics = metrics
        self.model_yaml_config = model_yaml_config if model_yaml_config is not None else {}
        self.system_properties: dict[str, Any] = {
            "model_dir": model_dir,
            "gpu_id": gpu_id,
            "batch_size": batch_size,
            "server_name": SERVER_NAME,
            "server_version": SERVER_VERSION,
            "limit_max_image_pixels": limit_max_image_pixels,
        }
        self.request_ids: dict[int, str] | None = None
        self.request_processor: list[RequestProcessor] = [RequestProcessor({})]
        self.stopping_criteria: list[Callable[[Any], Any] | None] | None = None
        self.cl_socket: Any = None
        self.cache: dict[str, Any] = {}
        self.emit: Callable[[int, object], None] = _no_emit
        self.ask: Ask = ask_nobody
        self.is_gone: Callable[[str], bool] = lambda _: False
        environ = os.environ
        default = "ts_request_sequence_"
        self.header_key_sequence_id = environ.get("TS_REQUEST_SEQUENCE_ID", default + "id")
        self.header_key_sequence_start = environ.get("TS_REQUEST_SEQUENCE_START", default + "start")
        self.header_key_sequence_end = environ.get("TS_REQUEST_SEQUENCE_END", default + "end")

    def begin(
        self,
        request_ids: Sequence[str],
        headers: Sequence[dict[str, str]],
        emit: Callable[[int, object], None] = _no_emit,
    ) -> None:
        """Starts a batch: request ids and headers in the batch's order, response state anew.

        Args:
            request_ids: One id a request.
            headers: One dict a request.
            emit: Sends an intermediate piece of the answer of the request with that index.
        """
        self.request_ids = dict(enumerate(request_ids))
        self.request_processor = [RequestProcessor(h) for h in headers]
        self.emit = emit

    def get_request_id(self, idx: int = 0) -> str | None:
        """Returns the id of the request with this index in the batch."""
        return (self.request_ids or {}).get(idx)

    def is_cancelled(self, idx: int = 0) -> bool:
        """Tells whether the caller of the request with this index is known to be gone."""
        return self.is_gone(self.get_request_id(idx) or "")

    def get_request_header(self, idx: int, key: str) -> str | None:
        """Returns a request header; the key's case counts."""
        return self.request_processor[idx].get_request_property(key)

    def get_all_request_header(self, idx: int) -> dict[str, str]:
        """Returns all headers of a request."""
        return self.request_processor[idx].get_request_properties()

    def set_response_content_type(self, idx: int, value: str) -> None:
        """Sets the response's content type."""
        self.set_response_header(idx, "content-type", value)

    def get_response_content_type(self, idx: int) -> str | None:
        """Returns the response's content type, if one was set."""
        return self.get_response_headers(idx).get("content-type")

    def set_response_status(self, code: int = 200, phrase: str = "", idx: int = 0) -> None:
        """Sets the HTTP status of one response."""
        self.request_processor[idx].report_status(code, phrase)

    def set_all_response_status(self, code: int = 200, phrase: str = "") -> None:
        """Sets the HTTP status of every response of the batch."""
        for processor in self.request_processor:
            processor.report_status(code, phrase)

    def get_response_status(self, idx: int) -> tuple[int, str]:
        """Returns status and reason phrase of a response."""
        processor = self.request_processor[idx]
        return processor.get_response_status_code(), processor.get_response_status_phrase()

    def set_response_header(self, idx: int, key: str, value: str) -> None:
        """Sets a response header."""
        self.request_processor[idx].add_response_property(key, value)

    def get_response_headers(self, idx: int) -> dict[str, str]:
        """Returns the response headers set so far."""
        return self.request_processor[idx].get_response_headers()

    def get_sequence_id(self, idx: int) -> str | None:
        """Returns the id of the sequence that a request belongs to, or None."""
        return self.get_request_header(idx, self.header_key_sequence_id)
