from __future__ import annotations

from typing import Any

import pytest

from marserve.archiver.errors import ConfigError
from marserve.archiver.execution import Execution, find_execution
from marserve.archiver.model_config import parse_model_config

COMPILED = {"pt2": {"compile": {"enable": True}}}
PACKAGE = {"pt2": {"export": {"aot_compile": True}}}
RANKS = {"torchrun": {"nproc-per-node": 2}}


def execution(file: str | None, config: dict[str, Any] | None = None, **options: Any) -> Execution:
    """`options` go to the section handler."""
    return find_execution(parse_model_config({**(config or {}), "handler": options}), file)


@pytest.mark.parametrize(
    ("file", "config", "options", "expected"),
    [
        ("model.safetensors", {}, {}, Execution("pretrained")),
        (None, {}, {}, Execution("pretrained")),
        ("weights.pth", {}, {}, Execution("pretrained")),
        ("traced.pt", {}, {}, Execution("torchscript")),
        ("traced.pth", {}, {"save_mode": "torchscript"}, Execution("torchscript")),
        ("model.onnx", {}, {}, Execution("onnx")),
        ("model.xml", {}, {}, Execution("openvino")),
        ("model.pt2", {}, {}, Execution("aot_inductor")),
        ("model.pt2", {}, {"save_mode": "exported"}, Execution("exported")),
        ("model.pt2", PACKAGE, {}, Execution("aot_inductor")),
        ("model.onnx", {}, {"save_mode": "pretrained"}, Execution("pretrained")),
        ("m.safetensors", COMPILED, {}, Execution("pretrained", compiled=True)),
        ("m.onnx", {}, {"BetterTransformer": True}, Execution("onnx", unpadded=True)),
        (
            "m.onnx",
            {},
            {"quantization": "int8_dynamic"},
            Execution("onnx", quantization="int8_dynamic"),
        ),
        (
            "m.safetensors",
            RANKS,
            {"model_parallel": True},
            Execution("pretrained", parallel="tp", ranks=2),
        ),
        (
            "m.safetensors",
            {"parallelType": "pp", "parallelLevel": 3},
            {},
            Execution("pretrained", parallel="pp", ranks=3),
        ),
        ("m.safetensors", {"parallelType": "pp"}, {}, Execution("pretrained")),
        ("m.safetensors", {}, {"model_parallel": True}, Execution("pretrained", parallel="tp")),
        ("m.safetensors", RANKS, {"model_parallel": False}, Execution("pretrained")),
    ],
)
def test_a_configuration_means_one_mode(
    file: str | None, config: dict[str, Any], options: dict[str, Any], expected: Execution
) -> None:
    assert expected == execution(file, config, **options)


@pytest.mark.parametrize(
    ("file", "config", "options", "named"),
    [
        ("m.onnx", COMPILED, {}, ["$.pt2.compile.enable: true", "m.onnx"]),
        (
            "m.pt",
            COMPILED,
            {"save_mode": "torchscript"},
            ["$.pt2.compile.enable: true", "$.handler.save_mode: torchscript"],
        ),
        ("m.pt", PACKAGE, {"save_mode": "torchscript"}, ["aot_compile: true", "torchscript"]),
        ("m.pt2", {}, {"dtype": "float16"}, ["$.handler.dtype: float16", "m.pt2"]),
        ("m.pt", RANKS, {"model_parallel": True}, ["$.handler.model_parallel: true", "m.pt"]),
        ("m.pt", {}, {"quantization": "int8_dynamic"}, ["$.handler.quantization", "it has none"]),
        ("m.xml", {}, {"quantization": "int8_dynamic"}, ["there is: int8_weight_only"]),
        ("m.safetensors", {}, {"save_mode": "onnx"}, ["$.handler.save_mode: onnx", "*.onnx"]),
        (None, {}, {"save_mode": "exported"}, ["*.pt2", "got none"]),
        ("m.xml", {"deviceType": "gpu"}, {}, ["$.deviceType: gpu", "openvino"]),
        (
            "m.safetensors",
            {},
            {"BetterTransformer": True, "mode": "text_generation"},
            ["$.handler.BetterTransformer: true", "$.handler.mode: text_generation"],
        ),
        ("m.safetensors", {}, {"hardware": "neuronx"}, ["$.handler.hardware: neuronx"]),
        (
            "m.safetensors",
            {"parallelLevel": 1},
            {"model_parallel": True},
            ["$.torchrun.nproc-per-node: 2 or more"],
        ),
        (
            "m.safetensors",
            {"parallelType": "pptp", "parallelLevel": 5},
            {"model_parallel": True},
            ["$.parallelType", "nproc-per-node: 4 or another even number"],
        ),
        (
            "m.safetensors",
            COMPILED,
            {"model_parallel": True},
            ["$.handler.model_parallel: true", "$.pt2.compile.enable: true"],
        ),
        (
            "m.safetensors",
            {**RANKS, "parallelType": "custom"},
            {"model_parallel": True},
            ["$.parallelType: custom", "$.handler.model_parallel: true"],
        ),
        (
            "m.safetensors",
            {**RANKS, **COMPILED},
            {"model_parallel": True},
            ["$.handler.model_parallel: true", "$.pt2.compile.enable: true"],
        ),
        (
            "m.safetensors",
            RANKS,
            {"model_parallel": True, "quantization": "int8_dynamic"},
            ["$.handler.model_parallel: true", "$.handler.quantization: int8_dynamic"],
        ),
    ],
)
def test_what_cannot_run_names_its_keys(
    file: str | None, config: dict[str, Any], options: dict[str, Any], named: list[str]
) -> None:
    with pytest.raises(ConfigError) as raised:
        execution(file, config, **options)

    assert [] == [part for part in named if part not in str(raised.value)]


def test_the_runner_of_each_source() -> None:
    assert "eager" == execution("m.safetensors").runner
    assert "compiled" == execution("m.safetensors", COMPILED).runner
    assert "parallel" == execution("m.safetensors", RANKS, model_parallel=True).runner
    assert "onnx" == execution("m.onnx").runner


def test_one_engine_is_told_what_to_compute_in() -> None:
    assert "openvino" == execution("m.xml", {}, dtype="bfloat16").source
    for file, dtype in (("m.xml", "float16"), ("m.onnx", "bfloat16")):
        with pytest.raises(ConfigError, match=rf"\$\.handler\.dtype: {dtype}"):
            execution(file, {}, dtype=dtype)
