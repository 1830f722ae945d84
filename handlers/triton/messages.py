"""Requests and responses as Triton models see them."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from marserve.handlers.triton.errors import TritonError, TritonModelException
from marserve.handlers.triton.tensors import Tensor

SEQUENCE_START, SEQUENCE_END = 1, 2
COMPLETE_FINAL = 1
RELEASE_ALL, RELEASE_RESCHEDULE = 1, 2

Call = Callable[["InferenceRequest", bool], Iterator["InferenceResponse"]]


class InferenceResponse:
    """One answer to a request.

    Args:
        output_tensors: Empty where there is an error.
        error: Why there is no answer; a text counts as an internal error.
        parameters: Texts, numbers and truths by name.
    """

    def __init__(
        self,
        output_tensors: Sequence[Tensor] = (),
        error: TritonError | str | None = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        self._tensors = list(output_tensors)
        if not all(isinstance(each, Tensor) for each in self._tensors):
            raise TritonModelException("output_tensors: expected Tensor objects")
        self._error = TritonError(error) if isinstance(error, str) else error
        self._parameters = dict(parameters or {})

    def output_tensors(self) -> list[Tensor]:
        """Returns the tensors."""
        return self._tensors

    def has_error(self) -> bool:
        """Tells whether there is an error in the place of tensors."""
        return self._error is not None

    def error(self) -> TritonError | None:
        """Returns the error."""
        return self._error

    def parameters(self) -> str:
        """Returns the parameters as JSON."""
        return json.dumps(self._parameters)


class ResponseSender:
    """Sends the answers to one request, from any thread, also after ``execute`` has returned.

    Args:
        send: Takes each answer; None for no more than the end.
        is_cancelled: Tells whether the client is gone.
    """

    def __init__(
        self,
        send: Callable[[InferenceResponse | None, bool], None],
        is_cancelled: Callable[[], bool],
    ) -> None:
        self._send = send
        self._is_cancelled = is_cancelled
        self._lock = threading.Lock()
        self._closed = False

    def send(self, response: InferenceResponse | None = None, flags: int = 0) -> None:
        """Sends an answer, or with ``flags`` the end of all answers, or both.

        Raises:
            TritonModelException: If the end was sent already, or there is nothing to send.
        """
        final = bool(int(flags) & COMPLETE_FINAL)
        if response is None and not final:
            raise TritonModelException("send: expected a response, or the flag of the last one")
        with self._lock:
            if self._closed:
                raise TritonModelException("send: the last response was sent already")
            self._closed = final
            self._send(response, final)

    def is_cancelled(self) -> bool:
        """Tells whether the client is gone, so that nobody waits for an answer."""
        return self._is_cancelled()


class InferenceRequest:
    """What a client asks of a model, or a model asks of another one.

    Args:
        model_name: Which is asked; so is ``model_version``, -1 for the default one.
        requested_output_names: Those wanted; empty for all.
        inputs: Its tensors.
        request_id: The client's.
        correlation_id: Of the sequence that it belongs to, a number or a text; 0 for none.
        flags: Whether it begins or ends its sequence.
        timeout: In microseconds; 0 for none.
        preferred_memory: Accepted, without effect: tensors are in the memory of the host.
        trace: Accepted, without effect.
        parameters: Texts, numbers and truths by name.
    """

    def __init__(
        self,
        request_id: str = "",
        correlation_id: int | str = 0,
        inputs: Sequence[Tensor] = (),
        requested_output_names: Sequence[str] = (),
        model_name: str = "",
        model_version: int = -1,
        flags: int = 0,
        timeout: int = 0,
        preferred_memory: Any = None,
        trace: Any = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        self._id = request_id
        self._correlation_id = correlation_id
        self._inputs = list(inputs)
        self._outputs = list(requested_output_names)
        self._name, self._version = model_name, model_version
        self._flags, self._timeout = flags, timeout
        self._parameters = dict(parameters or {})
        self.sender: ResponseSender | None = None

    def inputs(self) -> list[Tensor]:
        """Returns its tensors."""
        return self._inputs

    def request_id(self) -> str:
        """Returns the client's id, possibly empty."""
        return self._id

    def correlation_id(self) -> int | str:
        """Returns the id of its sequence; 0 for none."""
        return self._correlation_id

    def requested_output_names(self) -> list[str]:
        """Returns the outputs that are wanted; of a client's request, all if it names none."""
        return self._outputs

    def model_name(self) -> str:
        """Returns the name of the model that is asked."""
        return self._name

    def model_version(self) -> int:
        """Returns the version that is asked; -1 for the default one."""
        return self._version

    def flags(self) -> int:
        """Returns whether it begins or ends its sequence."""
        return self._flags

    def set_flags(self, flags: int) -> None:
        """Says whether it begins or ends its sequence."""
        self._flags = int(flags)

    def timeout(self) -> int:
        """Returns its time limit in microseconds; 0 for none."""
        return self._timeout

    def parameters(self) -> str:
        """Returns the parameters as JSON."""
        return json.dumps(self._parameters)

    def preferred_memory(self) -> None:
        """Returns nothing: tensors are in the memory of the host."""

    def trace(self) -> None:
        """Returns nothing: requests are traced by the server alone."""

    def is_cancelled(self) -> bool:
        """Tells whether the client is gone."""
        return self.sender is not None and self.sender.is_cancelled()

    def get_response_sender(self) -> ResponseSender:
        """Returns what sends the answers of this request.

        Raises:
            TritonModelException: If this request came from no client.
        """
        if self.sender is None:
            raise TritonModelException("this request was made by the model itself")
        return self.sender

    def set_release_flags(self, flags: int) -> None:
        """Accepts that the request is over, which is what happens to it.

        Raises:
            TritonModelException: If it is to be scheduled once more.
        """
        if int(flags) & RELEASE_RESCHEDULE:
            raise TritonModelException("requests cannot be scheduled once more by this server")

    def exec(self, decoupled: bool = False) -> Any:
        """Asks a model of the server and waits for its answer.

        Returns:
            The response; with ``decoupled`` an iterator of responses, as they come.

        Raises:
            TritonModelException: If it cannot be asked at all.
        """
        if running.call is None:
            raise TritonModelException("other models can be asked from a running model only")
        answers = running.call(self, decoupled)
        if decoupled:
            return answers
        found = list(answers)
        if len(found) != 1:
            text = f"{self._name} sent {len(found)} responses; ask it with decoupled=True"
            return InferenceResponse(error=TritonError(text, TritonError.UNSUPPORTED))
        return found[0]

    async def async_exec(self, decoupled: bool = False) -> Any:
        """Asks a model of the server while other coroutines run; else like ``exec``."""
        return await asyncio.to_thread(self.exec, decoupled)


class Running:
    """The model of this process.

    Attributes:
        call: Asks a model of the server; set for the worker's life.
    """

    def __init__(self) -> None:
        self.call: Call | None = None


running = Running()


def input_by_name(request: InferenceRequest, name: str) -> Tensor | None:
    """Returns an input of a request; None if it has none of that name."""
    return next((each for each in request.inputs() if each.name() == name), None)


def output_by_name(response: InferenceResponse, name: str) -> Tensor | None:
    """Returns an output of a response; None if it has none of that name."""
    return next((each for each in response.output_tensors() if each.name() == name), None)
