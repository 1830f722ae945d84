"""From requests to the calls of a pipeline: which inputs are its arguments, and which are named."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from marserve.handlers.errors import RequestError
from marserve.handlers.mlserver.codecs_text import StringCodec
from marserve.handlers.mlserver.huggingface.codecs import file_bytes, picture
from marserve.handlers.mlserver.model import MLModel
from marserve.handlers.mlserver.types import InferenceRequest, RequestInput

_REFUSED = ("num_workers",)
_MAIN_NAMES = ("inputs", "images", "image", "text_inputs", "sequences", "audio", "text", "X")
_MEDIA_NAMES = ("images", "image", "inputs", "args", "array_inputs")


@dataclass(slots=True)
class Call:
    """One call of a pipeline.

    Args:
        args: Its arguments.
        named: Those with names.
    """

    args: list[Any] = field(default_factory=list)
    named: dict[str, Any] = field(default_factory=dict)


def call_of(model: MLModel, request: InferenceRequest, media: str | None) -> Call:
    """Returns what a request means.

    The input ``args`` is the list of arguments, ``array_inputs`` one argument that is a list; each
    other input is an argument of its name.

    Args:
        model: Knows the declared content types.
        request: Its inputs are read as their content types say, texts otherwise.
        media: ``image`` or ``audio`` where the task takes files; None for texts.

    Raises:
        RequestError: If an input cannot be read.
    """
    call = Call()
    for each in request.inputs:
        value = _value(model, each)
        if media is not None and each.name in _MEDIA_NAMES:
            value = _files(value, media, each.name)
        if each.name == "args":
            call.args += value if isinstance(value, list) else [value]
        elif each.name == "array_inputs":
            call.args.insert(0, value if isinstance(value, list) else [value])
        else:
            call.named[each.name] = value
    return checked(call)


def call_of_body(value: Any, media: str | None) -> Call:
    """Returns what a plain body means: a text, a file, a list of them, or named arguments."""
    if isinstance(value, dict):
        named = {str(name): each for name, each in value.items()}
        if media is not None:
            found = {n: v for n, v in named.items() if n in _MEDIA_NAMES}
            named |= {name: _files(each, media, name) for name, each in found.items()}
        return checked(Call([], named))
    return Call([_files(value, media, "body") if media is not None else _text(value)])


def positional(call: Call, first: str) -> Call:
    """Returns a call whose main argument has no name, if it was given under another one.

    What a pipeline calls its main argument has changed between versions of transformers.

    Args:
        call: As the request has it.
        first: What this version calls it.
    """
    if call.args or first in call.named:
        return call
    name = next((name for name in _MAIN_NAMES if name in call.named), None)
    if name is None:
        return call
    rest = {key: value for key, value in call.named.items() if key != name}
    return Call([call.named[name]], rest)


def checked(call: Call) -> Call:
    """Refuses what would start processes.

    Raises:
        RequestError: If such an argument is named.
    """
    for name in _REFUSED:
        if name in call.named:
            raise RequestError(f"input '{name}' is not for requests to set")
    return call


def _value(model: MLModel, tensor: RequestInput) -> Any:
    if str(tensor.datatype) == "BYTES":
        return model.decode(tensor, default_codec=StringCodec)
    value = model.decode(tensor)
    if value is not tensor.data:
        return value
    values = value.root
    return values[0] if tensor.shape in ([1], [1, 1], []) and values else values


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, (bytes, bytearray)) else value


def _files(value: Any, media: str, name: str) -> Any:
    if isinstance(value, list):
        return [_files(each, media, name) for each in value]
    if not isinstance(value, (str, bytes, bytearray)):
        return value
    if media == "image":
        return picture(value, name)
    return _sound(file_bytes(value, name))


def _sound(data: bytes) -> Any:
    from marserve.handlers.audio import read_wav

    samples, rate = read_wav(data)
    return {"raw": samples, "sampling_rate": rate}
