from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from tests.handlers.serving import ask, context

from marserve.archiver.errors import HandlerLoadError
from marserve.handlers.base import BaseHandler, pick_device
from marserve.handlers.errors import RequestError
from marserve.handlers.timing import timed

MODEL = """
import torch

class Doubler(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.factor = torch.nn.Parameter(torch.tensor(2.0))

    def forward(self, x):
        return x * self.factor
"""


class Rows(BaseHandler):
    """Takes a list of numbers a request."""

    @timed
    def preprocess(self, data: list[Any]) -> torch.Tensor:
        return torch.tensor([row["body"] for row in data], dtype=torch.float32)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    (tmp_path / "model.py").write_text(MODEL)
    safetensors.torch.save_file({"factor": torch.tensor(3.0)}, tmp_path / "w.safetensors")
    torch.save({"factor": torch.tensor(4.0)}, tmp_path / "w.pth")
    (tmp_path / "index_to_name.json").write_text(json.dumps({"0": ["n0", "zero"]}))
    return tmp_path


def load(archive: Path, config: dict[str, Any] | None = None, **model: str) -> Rows:
    handler = Rows()
    handler.initialize(context(archive, config, None, **model))
    return handler


class TestModelFile:
    @pytest.mark.parametrize(
        ("model", "factor"),
        [
            ({}, 2.0),
            ({"serializedFile": "w.safetensors"}, 3.0),
            ({"serializedFile": "w.pth"}, 4.0),
        ],
    )
    def test_loads_code_and_weights(
        self, archive: Path, model: dict[str, Any], factor: float
    ) -> None:
        handler = load(archive, modelFile="model.py", **model)

        assert [[factor], [2 * factor]] == ask(handler, [[1], [2]])
        assert handler.initialized
        assert handler.mapping == {"0": "zero"}
        assert handler.map_location == "cpu"
        assert handler.model_yaml_config == {}
        assert not handler.model.training

    def test_a_subclass_may_load_itself(self, archive: Path) -> None:
        class Own(Rows):
            def _load_pickled_model(
                self, model_dir: str, model_file: str, model_pt_path: str | None
            ) -> Any:
                seen.append((model_dir, model_file, model_pt_path))
                return torch.nn.Threshold(1.5, 7.0)

            def _load_torchscript_model(self, model_pt_path: str) -> Any:
                return super()._load_torchscript_model(model_pt_path.replace("other", "m"))

        seen: list[tuple[str, str, str | None]] = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # TorchScript is deprecated
            traced = torch.jit.trace(torch.nn.Threshold(1.5, 8.0), torch.ones(2, 1))
            torch.jit.save(traced, archive / "m.pt")
        (archive / "other.pt").touch()
        eager, script = Own(), Own()

        eager.initialize(context(archive, None, None, modelFile="model.py"))
        script.initialize(context(archive, None, None, serializedFile="other.pt"))

        assert [(str(archive), "model.py", None)] == seen
        assert not eager.model.training
        assert [[7.0], [2.0]] == ask(eager, [[1], [2]])
        assert [[8.0], [2.0]] == ask(script, [[1], [2]])

    def test_wrong_weights_are_named(self, archive: Path) -> None:
        safetensors.torch.save_file({"other": torch.ones(1)}, archive / "w.safetensors")

        with pytest.raises(HandlerLoadError, match=r"w\.safetensors: does not fit Doubler"):
            load(archive, modelFile="model.py", serializedFile="w.safetensors")

    def test_a_pickle_of_objects_is_refused(self, archive: Path) -> None:
        torch.save({"factor": Path("x")}, archive / "w.pth")

        with pytest.raises(HandlerLoadError, match="may run code"):
            load(archive, modelFile="model.py", serializedFile="w.pth")

    @pytest.mark.parametrize(
        ("code", "found"),
        [
            ("x = 1", "none"),
            (MODEL + "\nclass Other(torch.nn.Module): pass", "Doubler, Other"),
        ],
    )
    def test_needs_exactly_one_class(self, archive: Path, code: str, found: str) -> None:
        (archive / "model.py").write_text(code)

        with pytest.raises(HandlerLoadError, match=f"exactly one class.*found {found}"):
            load(archive, modelFile="model.py")

    def test_a_base_class_in_the_same_file_does_not_count(self, archive: Path) -> None:
        (archive / "model.py").write_text(MODEL + "\nclass Last(Doubler): pass")

        assert type(load(archive, modelFile="model.py").model).__name__ == "Last"

    def test_compiles_as_asked(self, archive: Path) -> None:
        config = {"pt2": {"compile": {"enable": True, "backend": "eager"}}}

        handler = load(archive, config, modelFile="model.py")

        assert ask(handler, [[1.0]]) == [[2.0]]
        assert type(handler.model).__name__ == "OptimizedModule"

    def test_an_unknown_backend_is_an_error(self, archive: Path) -> None:
        with pytest.raises(HandlerLoadError, match="nvfuser"):
            load(archive, {"pt2": "nvfuser"}, modelFile="model.py")


class TestSerialized:
    def test_torchscript(self, archive: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            traced = torch.jit.trace(torch.nn.Identity(), torch.ones(1))
            torch.jit.save(traced, archive / "m.pt")

        assert ask(load(archive, serializedFile="m.pt"), [[5]]) == [[5.0]]

    def test_a_program_of_torch_export(self, archive: Path) -> None:
        rows = {"input": {0: torch.export.Dim("rows")}}
        program = torch.export.export(torch.nn.Softplus(), (torch.ones(2, 1),), dynamic_shapes=rows)
        torch.export.save(program, archive / "m.pt2")

        (one, two) = ask(load(archive, serializedFile="m.pt2"), [[0.0], [1.0]])

        assert [one[0], two[0]] == pytest.approx([0.6931, 1.3133], abs=1e-3)

    def test_onnx(self, archive: Path) -> None:
        from onnx import TensorProto, helper, save

        graph = helper.make_graph(
            [helper.make_node("Softplus", ["x"], ["y"])],
            "softplus",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 1])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 1])],
        )
        opset = [helper.make_opsetid("", 18)]
        save(helper.make_model(graph, opset_imports=opset, ir_version=10), archive / "m.onnx")

        (one, two) = ask(load(archive, serializedFile="m.onnx"), [[0.0], [1.0]])

        assert [one[0], two[0]] == pytest.approx([0.6931, 1.3133], abs=1e-3)

    @pytest.mark.parametrize("name", ["m.onnx", "m.pt2"])
    def test_a_damaged_program_is_named(self, archive: Path, name: str) -> None:
        (archive / name).write_bytes(b"something else")

        with pytest.raises(HandlerLoadError, match=f"{name}: is no"):
            load(archive, serializedFile=name)

    @pytest.mark.parametrize(
        ("model", "message"),
        [
            ({}, "No model weights"),
            ({"serializedFile": "absent.pt"}, "no absent.pt"),
            ({"modelFile": "absent.py"}, "no absent.py"),
            ({"serializedFile": "w.pth"}, "--model-file"),
            ({"serializedFile": "w.safetensors"}, "--model-file"),
            ({"serializedFile": "model.py"}, "expected .pt"),
        ],
    )
    def test_what_cannot_be_loaded_is_named(
        self, archive: Path, model: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(HandlerLoadError, match=message):
            load(archive, **model)

    def test_a_state_dict_is_no_torchscript(self, archive: Path) -> None:
        (archive / "w.pth").rename(archive / "w.pt")

        with pytest.raises(HandlerLoadError, match="is no TorchScript"):
            load(archive, serializedFile="w.pt")

    def test_compile_needs_code(self, archive: Path) -> None:
        with pytest.raises(HandlerLoadError, match="eager model"):
            load(archive, {"pt2": "inductor"}, serializedFile="w.pth")


class TestHandle:
    def test_stages_and_metrics(self, archive: Path) -> None:
        handler = load(archive, {"handler": {"profile": True}}, modelFile="model.py")

        ask(handler, [[1]])

        stages = [f"ts_handler_{stage}" for stage in ("preprocess", "inference", "postprocess")]
        assert {*stages, "HandlerTime"} == {sample[0] for sample in handler.context.metrics.drain()}

    def test_describe(self, archive: Path) -> None:
        class Described(Rows):
            def describe_handle(self) -> Any:
                return {"input": "numbers"}

        handler = Described()
        handler.initialize(context(archive, modelFile="model.py"))
        handler.context.begin(["a"], [{"describe": "True"}])

        assert handler.handle([{}], handler.context) == [{"input": "numbers"}]

    def test_explains_every_row(self, archive: Path) -> None:
        class Explained(Rows):
            def get_insights(self, tensor_data: Any, _: Any, target: Any = 0) -> list[Any]:
                return [{"shape": list(tensor_data.shape), "raw": _, "target": target}]

        handler = Explained()
        handler.initialize(context(archive, modelFile="model.py"))
        handler.context.begin(["a", "b"], [{"explain": "True"}] * 2)
        rows = [{"body": [1]}, {"body": [2], "target": 3}]

        results = handler.handle(rows, handler.context)

        assert results == [
            {"shape": [1, 1], "raw": [1], "target": 0},
            {"shape": [1, 1], "raw": [2], "target": 3},
        ]

    def test_without_explanations_it_says_so(self, archive: Path) -> None:
        handler = load(archive, modelFile="model.py")

        with pytest.raises(RequestError, match="get_insights"):
            ask(handler, [[1]], explain=True)

    def test_the_profiler_leaves_a_trace(
        self, archive: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv("ENABLE_TORCH_PROFILER", "true")
        handler = load(archive, modelFile="model.py")
        traces: list[Any] = []
        handler.profiler_args = {"on_trace_ready": traces.append}

        assert ask(handler, [[1]]) == [[2.0]]
        assert len(traces) == 1


def test_a_gpu_that_was_asked_for_and_is_absent_is_an_error() -> None:
    if torch.accelerator.is_available():
        pytest.skip("there is one")
    assert pick_device(None).type == "cpu"
    assert pick_device(0).type == "cpu"
    with pytest.raises(HandlerLoadError, match="deviceType"):
        pick_device(0, "gpu")
