"""Settings and parameters of V2's further calls: from messages to plain values, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from marserve.frontend.grpc import open_inference_pb2 as pb

_LISTS = frozenset({"trace_level"})


def read_choices(found: Mapping[str, Any]) -> dict[str, Any]:
    """Returns values of which each is one of several kinds; one that is none is left out."""
    return {
        name: getattr(value, kind)
        for name, value in found.items()
        if (kind := value.WhichOneof("parameter_choice")) is not None
    }


def read_traces(message: pb.TraceSettingRequest) -> dict[str, Any]:
    """Returns the settings of a request: lists or texts, None for those without a value."""
    given: dict[str, Any] = {}
    for name, setting in message.settings.items():
        values = list(setting.value)
        if not values:
            given[name] = None
        else:
            given[name] = values if name in _LISTS or len(values) > 1 else values[0]
    return given


def write_traces(values: Mapping[str, Any]) -> pb.TraceSettingResponse:
    """Returns the settings in force as a message."""
    message = pb.TraceSettingResponse()
    for name, value in values.items():
        texts = value if isinstance(value, list) else [str(value)]
        message.settings[name].value.extend(texts)
    return message


def write_logs(values: Mapping[str, Any]) -> pb.LogSettingsResponse:
    """Returns the settings in force as a message."""
    message = pb.LogSettingsResponse()
    for name, value in values.items():
        if isinstance(value, bool):
            message.settings[name].bool_param = value
        elif isinstance(value, int):
            message.settings[name].uint32_param = value
        else:
            message.settings[name].string_param = str(value)
    return message
