"""``@decode_args``: predict methods that take inputs by name, as their type hints say."""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable
from typing import Any

from marserve.handlers.mlserver import codecs
from marserve.handlers.mlserver.codecs_base import RequestCodec
from marserve.handlers.mlserver.errors import CodecNotFound, MLServerError
from marserve.handlers.mlserver.types import (
    InferenceRequest,
    InferenceResponse,
    RequestOutput,
)


def decode_args(predict: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a ``predict`` that takes a request and gives an answer.

    Args:
        predict: Its arguments are the names of the inputs, or one is the whole request; each hint
            names a codec's type, ``np.ndarray``, ``list[str]``, ``pd.DataFrame`` and so on. The
            hint of what it returns, one or a tuple, names those of the outputs.

    Raises:
        CodecNotFound: If a hint is the type of no codec.
    """
    signature = _Signature(predict)

    @functools.wraps(predict)
    async def wrapped(self: Any, payload: InferenceRequest) -> InferenceResponse:
        given = signature.arguments(self, payload)
        found = predict(self, **given)
        value = await found if inspect.isawaitable(found) else found
        return signature.response(self, payload, value)

    return wrapped


class _Signature:
    """The codecs of a method's arguments and of what it returns."""

    def __init__(self, predict: Callable[..., Any]) -> None:
        hints = typing.get_type_hints(predict)
        returned = hints.pop("return", None)
        named = list(inspect.signature(predict).parameters.values())[1:]
        self._arguments = {each.name: self._codec(each.name, hints) for each in named}
        self._optional = {each.name for each in named if each.default is not each.empty}
        kinds = _parts(returned)
        self._outputs = [self._output_codec(kind) for kind in kinds]
        self._several = len(kinds) > 1

    def arguments(self, model: Any, request: InferenceRequest) -> dict[str, Any]:
        """Returns what the method is called with.

        Raises:
            MLServerError: If an input is missing, or one is not among the arguments.
        """
        whole = [n for n, codec in self._arguments.items() if _is_of_requests(codec)]
        if whole:
            [name] = whole
            return {name: model.decode_request(request, default_codec=self._arguments[name])}
        there = {each.name: each for each in request.inputs}
        unknown = [f"'{name}'" for name in there if name not in self._arguments]
        if unknown:
            known = ", ".join(f"'{name}'" for name in self._arguments)
            text = f"Input {', '.join(unknown)} was not found. Available inputs are {known}."
            raise MLServerError(text)
        missing = [n for n in self._arguments if n not in there and n not in self._optional]
        if missing:
            raise MLServerError(f"Input '{missing[0]}' is missing.")
        return {
            name: model.decode(each, default_codec=self._arguments[name])
            for name, each in there.items()
        }

    def response(self, model: Any, request: InferenceRequest, value: Any) -> InferenceResponse:
        """Returns what the method returned as an answer."""
        if isinstance(value, InferenceResponse):
            return value
        if len(self._outputs) == 1 and _is_of_requests(self._outputs[0]):
            answer: InferenceResponse = self._outputs[0].encode_response(
                model.name, value, model.version
            )
            return answer
        values = list(value) if self._several or isinstance(value, tuple) else [value]
        codecs_ = self._outputs or [None] * len(values)
        if len(codecs_) != len(values):
            text = f"predict returned {len(values)} values, its hint has {len(codecs_)}"
            raise MLServerError(text, 500)
        return InferenceResponse(
            model_name=model.name,
            model_version=model.version,
            outputs=[
                model.encode(each, RequestOutput(name=f"output-{at}"), default_codec=codec)
                for at, (each, codec) in enumerate(zip(values, codecs_, strict=True))
            ],
        )

    def _codec(self, name: str, hints: dict[str, Any]) -> Any:
        if name not in hints:
            return None
        kind = _required(hints[name])
        found = codecs.find_input_codec(hint=kind) or codecs.find_request_codec(hint=kind)
        if found is None:
            raise CodecNotFound(name=name, payload_type=str(kind), is_input=True)
        return found

    def _output_codec(self, kind: Any) -> Any:
        found = codecs.find_input_codec(hint=kind) or codecs.find_request_codec(hint=kind)
        if found is None and kind is not InferenceResponse:
            raise CodecNotFound(payload_type=str(kind))
        return found


def _parts(returned: Any) -> list[Any]:
    if returned is None or returned is type(None):
        return []
    if typing.get_origin(returned) is tuple:
        return [_required(kind) for kind in typing.get_args(returned)]
    return [_required(returned)]


def _required(kind: Any) -> Any:
    """The type without its None."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        kinds = [each for each in typing.get_args(kind) if each is not type(None)]
        return kinds[0] if len(kinds) == 1 else kind
    return kind


def _is_of_requests(codec: Any) -> bool:
    return isinstance(codec, type) and issubclass(codec, RequestCodec)


__all__ = ["decode_args"]
