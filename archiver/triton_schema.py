"""The keys of Triton's config.pbtxt with their types, and what becomes of those without effect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["text", "int", "float", "bool"]


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a message.

    Args:
        kind: Of a scalar; the words of an enum, by number; or the keys of a message.
        repeated: Whether there may be many.
        mapped: Whether it is a map from texts to ``kind``.
        note: Why it has no effect here; empty if it has one.
    """

    kind: Kind | tuple[str, ...] | Schema
    repeated: bool = False
    mapped: bool = False
    note: str = ""


Schema = dict[str, Key]

TYPES = (
    "TYPE_INVALID",
    "TYPE_BOOL",
    "TYPE_UINT8",
    "TYPE_UINT16",
    "TYPE_UINT32",
    "TYPE_UINT64",
    "TYPE_INT8",
    "TYPE_INT16",
    "TYPE_INT32",
    "TYPE_INT64",
    "TYPE_FP16",
    "TYPE_FP32",
    "TYPE_FP64",
    "TYPE_STRING",
    "TYPE_BF16",
)
_ENGINE = "the engine's own settings are used"
_NO_LIMITER = "instances run whenever there is work for them"
_METRICS = "the server's own metrics are reported"

_text, _int, _bool, _type = Key("text"), Key("int"), Key("bool"), Key(TYPES)
_ints, _texts = Key("int", repeated=True), Key("text", repeated=True)
_shape = Key({"shape": _ints})
_words = Key("text", mapped=True)
_parameter = Key({"string_value": _text}, mapped=True)

_INPUT: Schema = {
    "name": _text,
    "data_type": _type,
    "format": Key(("FORMAT_NONE", "FORMAT_NHWC", "FORMAT_NCHW")),
    "dims": _ints,
    "reshape": _shape,
    "is_shape_tensor": Key("bool", note="only engines of TensorRT have shape tensors"),
    "allow_ragged_batch": _bool,
    "optional": _bool,
    "is_non_linear_format_io": Key("bool", note="only engines of TensorRT have such tensors"),
}
_OUTPUT: Schema = {
    "name": _text,
    "data_type": _type,
    "dims": _ints,
    "reshape": _shape,
    "label_filename": _text,
    "is_shape_tensor": _INPUT["is_shape_tensor"],
    "is_non_linear_format_io": _INPUT["is_non_linear_format_io"],
}
_POLICY: Schema = {
    "timeout_action": Key(("REJECT", "DELAY")),
    "default_timeout_microseconds": _int,
    "allow_timeout_override": _bool,
    "max_queue_size": _int,
}
_BATCHING: Schema = {
    "preferred_batch_size": _ints,
    "max_queue_delay_microseconds": _int,
    "preserve_ordering": Key("bool", note="each answer belongs to its own request"),
    "priority_levels": _int,
    "default_priority_level": _int,
    "default_queue_policy": Key(_POLICY),
    "priority_queue_policy": Key(_POLICY, mapped=True),
}
_CONTROL: Schema = {
    "kind": Key(
        (
            "CONTROL_SEQUENCE_START",
            "CONTROL_SEQUENCE_READY",
            "CONTROL_SEQUENCE_END",
            "CONTROL_SEQUENCE_CORRID",
        )
    ),
    "int32_false_true": _ints,
    "fp32_false_true": Key("float", repeated=True),
    "bool_false_true": Key("bool", repeated=True),
    "data_type": _type,
}
_INITIAL: Schema = {
    "data_type": _type,
    "dims": _ints,
    "zero_data": _bool,
    "data_file": _text,
    "name": _text,
}
_STATE: Schema = {
    "input_name": _text,
    "output_name": _text,
    "data_type": _type,
    "dims": _ints,
    "initial_state": Key(_INITIAL, repeated=True),
    "use_same_buffer_for_input_output": Key("bool", note="states are kept as arrays"),
    "use_growable_memory": Key("bool", note="states are kept as arrays"),
}
_SEQUENCES: Schema = {
    "direct": Key(
        {
            "max_queue_delay_microseconds": _int,
            "minimum_slot_utilization": Key("float", note="what waits is run at once"),
        }
    ),
    "oldest": Key(
        {
            "max_candidate_sequences": _int,
            "preferred_batch_size": Key("int", repeated=True, note="what waits is run at once"),
            "max_queue_delay_microseconds": _int,
            "preserve_ordering": _BATCHING["preserve_ordering"],
        }
    ),
    "max_sequence_idle_microseconds": _int,
    "control_input": Key({"name": _text, "control": Key(_CONTROL, repeated=True)}, repeated=True),
    "state": Key(_STATE, repeated=True),
    "iterative_sequence": _bool,
    "generative_sequence": _bool,
}
_STEP: Schema = {
    "model_name": _text,
    "model_version": _int,
    "input_map": _words,
    "output_map": _words,
    "model_namespace": Key("text", note="all models of a server have one namespace"),
}
_GROUP: Schema = {
    "name": Key("text", note="workers are numbered by the server"),
    "kind": Key(("KIND_AUTO", "KIND_GPU", "KIND_CPU", "KIND_MODEL")),
    "count": _int,
    "gpus": _ints,
    "rate_limiter": Key(
        {
            "resources": Key({"name": _text, "global": _bool, "count": _int}, repeated=True),
            "priority": _int,
        },
        note=_NO_LIMITER,
    ),
    "profile": Key("text", repeated=True, note="profiles belong to TensorRT"),
    "passive": _bool,
    "secondary_devices": Key(
        {"kind": Key(("KIND_NVDLA",)), "device_id": _int}, repeated=True, note=_ENGINE
    ),
    "host_policy": Key("text", note="the server has no host policies"),
}
_WARM_INPUT: Schema = {
    "data_type": _type,
    "dims": _ints,
    "zero_data": _bool,
    "random_data": _bool,
    "input_data_file": _text,
}
_WARM_UP: Schema = {
    "name": _text,
    "batch_size": _int,
    "inputs": Key(_WARM_INPUT, mapped=True),
    "count": _int,
}
_ACCELERATOR = Key({"name": _text, "parameters": _words}, repeated=True)
_PINNED = Key({"enable": _bool}, note="tensors reach a worker through its socket")
_GRAPH_SHAPE = Key({"dim": _ints}, mapped=True)
_BATCH_INPUT: Schema = {
    "kind": Key(
        (
            "BATCH_ELEMENT_COUNT",
            "BATCH_ACCUMULATED_ELEMENT_COUNT",
            "BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO",
            "BATCH_MAX_ELEMENT_COUNT_AS_SHAPE",
            "BATCH_ITEM_SHAPE",
            "BATCH_ITEM_SHAPE_FLATTEN",
        )
    ),
    "target_name": _texts,
    "data_type": _type,
    "source_input": _texts,
}
_OPTIMIZATION: Schema = {
    "graph": Key({"level": _int}, note=_ENGINE),
    "priority": Key(
        ("PRIORITY_DEFAULT", "PRIORITY_MAX", "PRIORITY_MIN"), note="processes have equal priority"
    ),
    "cuda": Key(
        {
            "graphs": _bool,
            "busy_wait_events": _bool,
            "graph_spec": Key(
                {
                    "batch_size": _int,
                    "input": _GRAPH_SHAPE,
                    "graph_lower_bound": Key({"batch_size": _int, "input": _GRAPH_SHAPE}),
                },
                repeated=True,
            ),
            "output_copy_stream": _bool,
        },
        note=_ENGINE,
    ),
    "execution_accelerators": Key(
        {"gpu_execution_accelerator": _ACCELERATOR, "cpu_execution_accelerator": _ACCELERATOR},
        note="ONNX Runtime runs on the CPU's or CUDA's own provider",
    ),
    "input_pinned_memory": _PINNED,
    "output_pinned_memory": _PINNED,
    "gather_kernel_buffer_threshold": Key("int", note=_ENGINE),
    "eager_batching": Key("bool", note="batches are joined in the worker"),
}
_HISTOGRAM: Schema = {"buckets": Key("float", repeated=True)}
_METRIC: Schema = {
    "metric_identifier": Key({"family": _text}),
    "histogram_options": Key(_HISTOGRAM),
}

SCHEMA: Schema = {
    "name": _text,
    "platform": _text,
    "backend": _text,
    "runtime": Key("text", note="the backend decides what runs the model"),
    "version_policy": Key(
        {
            "latest": Key({"num_versions": _int}),
            "all": Key({}),
            "specific": Key({"versions": _ints}),
        }
    ),
    "max_batch_size": _int,
    "input": Key(_INPUT, repeated=True),
    "output": Key(_OUTPUT, repeated=True),
    "batch_input": Key(_BATCH_INPUT, repeated=True),
    "batch_output": Key(
        {
            "target_name": _texts,
            "kind": Key(("BATCH_SCATTER_WITH_INPUT_SHAPE",)),
            "source_input": _texts,
        },
        repeated=True,
    ),
    "optimization": Key(_OPTIMIZATION),
    "dynamic_batching": Key(_BATCHING),
    "sequence_batching": Key(_SEQUENCES),
    "ensemble_scheduling": Key({"step": Key(_STEP, repeated=True), "max_inflight_requests": _int}),
    "instance_group": Key(_GROUP, repeated=True),
    "default_model_filename": _text,
    "cc_model_filenames": Key("text", mapped=True, note="one file serves every compute capability"),
    "metric_tags": Key("text", mapped=True, note=_METRICS),
    "parameters": _parameter,
    "model_warmup": Key(_WARM_UP, repeated=True),
    "model_operations": Key(
        {"op_library_filename": _texts}, note="libraries of operators are not loaded"
    ),
    "model_transaction_policy": Key({"decoupled": _bool}),
    "model_repository_agents": Key(
        {"agents": Key({"name": _text, "parameters": _words}, repeated=True)},
        note="agents are not run: nothing is checked or fetched by them",
    ),
    "response_cache": Key({"enable": _bool}),
    "model_metrics": Key({"metric_control": Key(_METRIC, repeated=True)}, note=_METRICS),
}
"""The message ModelConfig."""
