"""What Triton's models find in pb_utils, and what is done to their tensors."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import marserve
from marserve.archiver.errors import HandlerLoadError
from marserve.handlers.tensors import TensorAnswer
from marserve.handlers.triton.configuration import ModelConfig
from marserve.handlers.triton.messages import InferenceRequest, InferenceResponse
from marserve.handlers.triton.rows import request_of, result_of
from marserve.handlers.triton.sequences import Sequences
from marserve.handlers.triton.shapes import Shapes
from marserve.handlers.triton.warm_up import warm_up


def _utils() -> Any:
    path = Path(marserve.__file__).parent / "worker/compat/triton_python_backend_utils.py"
    spec = importlib.util.spec_from_file_location("triton_python_backend_utils", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


pb_utils = _utils()


def test_datatypes_in_all_of_their_spellings() -> None:
    words = ["BOOL", "UINT8", "INT64", "FP16", "FP32", "FP64"]
    types = [np.bool_, np.uint8, np.int64, np.float16, np.float32, np.float64]

    assert types == [pb_utils.triton_string_to_numpy(f"TYPE_{word}") for word in words]
    assert pb_utils.triton_string_to_numpy("TYPE_STRING") is np.object_
    for dtype in (*types, np.object_):
        number = pb_utils.numpy_to_triton_type(dtype)
        assert pb_utils.triton_to_numpy_type(number) is dtype


def test_texts_are_serialized_with_their_lengths() -> None:
    texts = np.array([[b"ab", "ü"], [b"", b"\x00"]], object)

    encoded = pb_utils.serialize_byte_tensor(texts)

    found = pb_utils.deserialize_bytes_tensor(encoded.tobytes())
    assert found.tolist() == [b"ab", "ü".encode(), b"", b"\x00"]


def test_tensors_go_to_other_libraries_and_back() -> None:
    torch = pytest.importorskip("torch")
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    values.flags.writeable = False

    tensor = pb_utils.Tensor("A", values)
    theirs = torch.from_dlpack(tensor)
    back = pb_utils.Tensor.from_dlpack("B", theirs * 2)

    assert (tensor.name(), tensor.is_cpu(), tensor.shape()) == ("A", True, [2, 3])
    assert tensor.triton_dtype() == "FP32"
    assert torch.equal(theirs, torch.arange(6.0).reshape(2, 3))
    assert np.array_equal(back.as_numpy(), values * 2)
    assert torch.equal(torch.utils.dlpack.from_dlpack(tensor.to_dlpack()), theirs)
    with pytest.raises(TypeError, match="expected a numpy array, got list"):
        pb_utils.Tensor("A", [1, 2])


def test_a_sender_ends_once() -> None:
    sent: list[tuple[Any, bool]] = []
    sender = pb_utils.InferenceResponseSender(
        lambda response, final: sent.append((response, final)), lambda: False
    )
    response = pb_utils.InferenceResponse([])

    with pytest.raises(pb_utils.TritonModelException, match="expected a response"):
        sender.send()
    sender.send(response)
    sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
    with pytest.raises(pb_utils.TritonModelException, match="was sent already"):
        sender.send(response)

    assert sent == [(response, False), (None, True)]


def test_errors_become_statuses() -> None:
    codes = {"INTERNAL": 500, "NOT_FOUND": 404, "UNAVAILABLE": 503, "UNSUPPORTED": 501}
    codes |= dict.fromkeys(("UNKNOWN", "INVALID_ARG", "ALREADY_EXISTS", "CANCELLED"), 400)

    for code, status in codes.items():
        error = pb_utils.TritonError("why", getattr(pb_utils.TritonError, code))
        found = result_of(InferenceResponse(error=error), Shapes({}))
        assert not isinstance(found, TensorAnswer)
        assert (found.status, found.message) == (status, "why")
    plain = result_of(InferenceResponse(error=pb_utils.TritonError("why")), Shapes({}))
    assert not isinstance(plain, TensorAnswer)
    assert plain.status == 500


def test_what_a_request_carries() -> None:
    headers = {
        "V2-Parameters": json.dumps({"sequence_id": 9, "sequence_start": True, "own": "x"}),
        "V2-Id": "7",
        "V2-Wanted": '["O"]',
    }

    request = request_of({"A": np.ones(2)}, headers, Shapes({}), model_name="m", model_version=3)

    assert (request.request_id(), request.correlation_id()) == ("7", 9)
    assert request.flags() == pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START
    assert json.loads(request.parameters()) == {"own": "x"}
    assert request.requested_output_names() == ["O"]
    assert (request.model_name(), request.model_version()) == ("m", 3)
    found = pb_utils.get_input_tensor_by_name(request, "A")
    assert found is not None
    assert found.as_numpy().tolist() == [1, 1]
    assert pb_utils.get_input_tensor_by_name(request, "B") is None


@pytest.mark.parametrize(
    ("most", "dims", "reshape", "given", "seen"),
    [
        (0, [1], [], (1,), ()),
        (8, [1], [], (3, 1), (3,)),
        (8, [4], [2, 2], (3, 4), (3, 2, 2)),
        (8, [-1, 3], [3, -1], (2, 5, 3), (2, 3, 5)),
        (0, [-1], [1, -1], (4,), (1, 4)),
    ],
)
def test_inputs_and_outputs_are_reshaped(
    most: int, dims: list[int], reshape: list[int], given: Any, seen: Any
) -> None:
    tensor = {"name": "A", "dims": dims, "reshape": {"shape": reshape}}
    shapes = Shapes({"max_batch_size": most, "input": [tensor], "output": [tensor]})

    inside = shapes.inwards("A", np.zeros(given))

    assert inside.shape == seen
    assert shapes.outwards("A", inside).shape == given


def test_a_model_completes_only_what_is_not_said() -> None:
    config = ModelConfig({"max_batch_size": 2, "input": [{"name": "A", "data_type": "TYPE_INT8"}]})

    config.set_max_batch_size(4)
    config.add_input({"name": "A", "data_type": "TYPE_INT8", "dims": [1]})
    config.add_output({"name": "B", "data_type": "TYPE_INT8", "dims": [1]})
    config.set_model_transaction_policy({"decoupled": False})

    plain = config.as_dict()
    assert plain["max_batch_size"] == 2
    assert plain["input"] == [{"name": "A", "data_type": "TYPE_INT8", "dims": [1]}]
    with pytest.raises(ValueError, match="more than the model's 1"):
        config.set_max_batch_size(1)
    with pytest.raises(ValueError, match="input 'A': data_type is TYPE_INT8, not TYPE_FP32"):
        config.add_input({"name": "A", "data_type": "TYPE_FP32", "dims": [1]})
    with pytest.raises(ValueError, match="property 'dims' is missing"):
        config.add_input({"name": "C", "data_type": "TYPE_FP32"})


SEQUENCES = {
    "max_batch_size": 2,
    "sequence_batching": {
        "control_input": [
            {
                "name": "START",
                "control": [{"kind": "CONTROL_SEQUENCE_START", "int32_false_true": [0, 5]}],
            },
            {
                "name": "CORRID",
                "control": [{"kind": "CONTROL_SEQUENCE_CORRID", "data_type": "TYPE_INT64"}],
            },
        ],
        "state": [
            {"input_name": "IN", "output_name": "OUT", "data_type": "TYPE_FP32", "dims": [2]}
        ],
    },
}


def test_a_sequence_has_its_controls_and_its_state(tmp_path: Path) -> None:
    sequences = Sequences(SEQUENCES, tmp_path)

    def step(id: int, flags: int, state: float) -> dict[str, Any]:
        request = InferenceRequest(correlation_id=id, flags=flags)
        seen = sequences.prepared(request, {"A": np.zeros((1, 3))})
        outputs = {"Y": np.zeros(1), "OUT": np.full((1, 2), state, np.float32)}
        assert list(sequences.finished(request, outputs)) == ["Y"]
        return {name: seen[name].tolist() for name in ("START", "CORRID", "IN")}

    assert step(4, 1, 1.0) == {"START": [[5]], "CORRID": [[4]], "IN": [[0, 0]]}
    assert step(9, 1, 7.0)["IN"] == [[0, 0]]
    assert step(4, 0, 2.0) == {"START": [[0]], "CORRID": [[4]], "IN": [[1, 1]]}
    assert step(4, 2, 3.0)["IN"] == [[2, 2]]
    assert step(9, 0, 8.0)["IN"] == [[7, 7]]
    assert step(4, 0, 0.0)["IN"] == [[0, 0]]


def test_warm_up_makes_the_requests_that_are_described(tmp_path: Path) -> None:
    (tmp_path / "warmup").mkdir()
    (tmp_path / "warmup" / "raw").write_bytes(np.array([1, 2], np.int32).tobytes())
    inputs: dict[str, dict[str, Any]] = {
        "Z": {"data_type": "TYPE_FP32", "dims": [2], "zero_data": True},
        "R": {"data_type": "TYPE_INT8", "dims": [2], "random_data": True},
        "T": {"data_type": "TYPE_STRING", "dims": [1], "zero_data": True},
        "F": {"data_type": "TYPE_INT32", "dims": [2], "input_data_file": "raw"},
    }
    sample = {"name": "w", "batch_size": 3, "count": 2, "inputs": inputs}
    seen: list[dict[str, Any]] = []

    warm_up({"max_batch_size": 4, "model_warmup": [sample]}, tmp_path, seen.append)

    assert len(seen) == 2
    shapes = {name: array.shape for name, array in seen[0].items()}
    assert shapes == {"Z": (3, 2), "R": (3, 2), "T": (3, 1), "F": (3, 2)}
    assert seen[0]["F"].tolist() == [[1, 2]] * 3
    inputs["F"]["input_data_file"] = "../raw"
    with pytest.raises(HandlerLoadError, match="there is no file"):
        warm_up({"model_warmup": [sample]}, tmp_path, seen.append)
