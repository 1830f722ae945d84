"""What models of Triton's Python backend import, mostly as ``pb_utils``."""

from typing import Any

from marserve.handlers.triton.calls import repository as _repository
from marserve.handlers.triton.configuration import ModelConfig
from marserve.handlers.triton.configuration import config_by_name as _config_by_name
from marserve.handlers.triton.errors import TritonError, TritonModelException
from marserve.handlers.triton.messages import (
    COMPLETE_FINAL,
    RELEASE_ALL,
    RELEASE_RESCHEDULE,
    SEQUENCE_END,
    SEQUENCE_START,
    InferenceRequest,
    InferenceResponse,
    ResponseSender,
)
from marserve.handlers.triton.messages import input_by_name as get_input_tensor_by_name
from marserve.handlers.triton.messages import output_by_name as get_output_tensor_by_name
from marserve.handlers.triton.reporting import Logger, MetricFamily
from marserve.handlers.triton.reporting import MetricSeries as Metric
from marserve.handlers.triton.tensors import (
    Tensor,
    deserialize_bytes_tensor,
    numpy_to_triton_type,
    serialize_byte_tensor,
    triton_string_to_numpy,
    triton_to_numpy_type,
)

InferenceResponseSender = ResponseSender
TRITONSERVER_RESPONSE_COMPLETE_FINAL = COMPLETE_FINAL
TRITONSERVER_REQUEST_FLAG_SEQUENCE_START = SEQUENCE_START
TRITONSERVER_REQUEST_FLAG_SEQUENCE_END = SEQUENCE_END
TRITONSERVER_REQUEST_RELEASE_ALL = RELEASE_ALL
TRITONSERVER_REQUEST_RELEASE_RESCHEDULE = RELEASE_RESCHEDULE
TRITONSERVER_MEMORY_CPU, TRITONSERVER_MEMORY_GPU = 0, 2

is_model_ready = _repository.is_ready
load_model = _repository.load
unload_model = _repository.unload


class PreferredMemory:
    """Where a model would like the tensors of an answer; they are in the memory of the host."""

    def __init__(
        self, preferred_memory_type: int = TRITONSERVER_MEMORY_CPU, preferred_device_id: int = 0
    ) -> None:
        self.type, self.device_id = preferred_memory_type, preferred_device_id


def get_input_config_by_name(model_config: dict[str, Any], name: str) -> dict[str, Any] | None:
    """Returns what a configuration says of an input; None if it does not know it."""
    return _config_by_name(model_config, "input", name)


def get_output_config_by_name(model_config: dict[str, Any], name: str) -> dict[str, Any] | None:
    """Returns what a configuration says of an output; None if it does not know it."""
    return _config_by_name(model_config, "output", name)


def using_decoupled_model_transaction_policy(model_config: dict[str, Any]) -> bool:
    """Tells whether a model sends any number of answers to a request."""
    return bool(model_config.get("model_transaction_policy", {}).get("decoupled", False))


def get_model_dir() -> str:
    """Returns the folder of the model's version."""
    return str(_repository.folder)


__all__ = [
    "InferenceRequest",
    "InferenceResponse",
    "InferenceResponseSender",
    "Logger",
    "Metric",
    "MetricFamily",
    "ModelConfig",
    "PreferredMemory",
    "Tensor",
    "TritonError",
    "TritonModelException",
    "deserialize_bytes_tensor",
    "get_input_config_by_name",
    "get_input_tensor_by_name",
    "get_model_dir",
    "get_output_config_by_name",
    "get_output_tensor_by_name",
    "is_model_ready",
    "load_model",
    "numpy_to_triton_type",
    "serialize_byte_tensor",
    "triton_string_to_numpy",
    "triton_to_numpy_type",
    "unload_model",
    "using_decoupled_model_transaction_policy",
]
