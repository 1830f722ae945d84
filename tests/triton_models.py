"""Tiny seeded models for Triton's backends: a vision transformer, programs of ONNX and PyTorch."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path
from typing import Any

SERVICES = Path(__file__).resolve().parent / "services"
SEED = 7
SIDE = 32


def add_vit(repository: Path) -> None:
    """Copies the models of the vision transformer into a repository and makes their weights."""
    import torch
    from transformers import ViTConfig, ViTImageProcessor, ViTModel

    shutil.copytree(SERVICES / "triton_vit", repository, dirs_exist_ok=True)
    config = ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        image_size=SIDE,
        patch_size=16,
    )
    with torch.random.fork_rng():
        torch.manual_seed(SEED)
        model = ViTModel(config).eval()
    processor = ViTImageProcessor(size={"height": SIDE, "width": SIDE})
    for name in ("python_vit", "preprocessing"):
        processor.save_pretrained(repository / name / "1" / "weights")
    model.save_pretrained(repository / "python_vit" / "1" / "weights")
    _export_onnx(_Hidden(model), repository / "vit" / "1" / "model.onnx")


def _export_onnx(model: Any, path: Path) -> None:
    import torch

    example = torch.zeros(2, 3, SIDE, SIDE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter, about itself
        program = torch.onnx.export(
            model,
            (example,),
            input_names=["pixel_values"],
            output_names=["last_hidden_state"],
            dynamic_shapes=({0: torch.export.Dim("rows")},),
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    program.save(str(path))


def _Hidden(model: Any) -> Any:
    import torch

    class Hidden(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
            hidden: torch.Tensor = self.model(pixel_values=pixel_values).last_hidden_state
            return hidden

    return Hidden().eval()


def add_programs(repository: Path) -> None:
    """Writes models that double and sum: ONNX without configuration, TorchScript, torch.export."""
    add_onnx(repository / "onnx_sum", versions=(1, 3))
    _add_torchscript(repository / "script_sum")
    _add_exported(repository / "exported_sum")


def add_onnx(folder: Path, versions: tuple[int, ...]) -> None:
    """Writes an ONNX model, ``Y = A + version * B``, float32 of [rows, 2]."""
    import onnx
    from onnx import TensorProto, helper

    for version in versions:
        values = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", 2])
            for name in ("A", "B", "Y")
        ]
        weight = helper.make_tensor("W", TensorProto.FLOAT, [], [float(version)])
        nodes = [
            helper.make_node("Mul", ["B", "W"], ["WB"]),
            helper.make_node("Add", ["A", "WB"], ["Y"]),
        ]
        graph = helper.make_graph(nodes, "sum", values[:2], values[2:], [weight])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        (folder / str(version)).mkdir(parents=True)
        onnx.save(model, str(folder / str(version) / "model.onnx"))


def _module() -> Any:
    import torch

    class Sums(torch.nn.Module):
        def forward(
            self, first: torch.Tensor, second: torch.Tensor
        ) -> tuple[torch.Tensor, torch.Tensor]:
            return first + 2 * second, first - second

    return Sums().eval()


_TORCH_CONFIG = """
backend: "pytorch"
max_batch_size: 8
input [
  { name: "INPUT__0" data_type: TYPE_FP32 dims: [ 2 ] },
  { name: "INPUT__1" data_type: TYPE_FP32 dims: [ 2 ] }
]
output [
  { name: "OUTPUT__1" data_type: TYPE_FP32 dims: [ 2 ] },
  { name: "OUTPUT__0" data_type: TYPE_FP32 dims: [ 2 ] }
]
dynamic_batching { max_queue_delay_microseconds: 500 }
"""


def _add_torchscript(folder: Path) -> None:
    import torch

    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(_TORCH_CONFIG)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the format is on its way out; what has it is still served
        torch.jit.script(_module()).save(str(folder / "1" / "model.pt"))


def _add_exported(folder: Path) -> None:
    import torch

    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(_TORCH_CONFIG)
    rows = torch.export.Dim("rows", max=1024)
    example = (torch.zeros(3, 2), torch.ones(3, 2))
    program = torch.export.export(_module(), example, dynamic_shapes=({0: rows}, {0: rows}))
    torch.export.save(program, str(folder / "1" / "model.pt2"))
