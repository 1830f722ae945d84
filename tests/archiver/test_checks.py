from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from marserve.archiver.checks import check_files
from marserve.archiver.entry_points import entry_point_problem
from marserve.archiver.manifest import Manifest, ManifestModel
from marserve.archiver.safetensors import header_problem


@pytest.mark.parametrize(
    ("code", "entry"),
    [
        ("def handle(data, context): ...", ""),
        ("async def handle(data, context): ...", ""),
        ("handle = print", ""),
        ("from elsewhere import handle", ""),
        ("from elsewhere import *", ""),
        ("import elsewhere as handle", ""),
        ("try:\n    import x\nexcept ImportError:\n    def handle(data, context): ...", ""),
        ("if True:\n    class A:\n        def handle(self): ...", ""),
        ("class A:\n    async def handle(self, data, context): ...", ""),
        ("class A(BaseHandler): ...", ""),
        ("class A: ...\nclass B(BaseHandler): ...\nclass C(Enum): ...", ""),
        ("def other(data, context): ...", "other"),
        ("class Other: ...", "Other"),
        ("_service = object()\ndef handle(data, context): ...\nclass A(B): ...", ""),
        ('x = "\\d"\ndef handle(data, context): ...', ""),
    ],
)
def test_a_handler_with_an_entry_point_passes(tmp_path: Path, code: str, entry: str) -> None:
    (tmp_path / "h.py").write_text(code)

    assert entry_point_problem(tmp_path / "h.py", entry) is None


@pytest.mark.parametrize(
    ("code", "entry", "problem"),
    [
        ("def handle(", "", "line 1: cannot be parsed as Python"),
        ("x = 1\n  y = 2", "", "line 2: cannot be parsed as Python"),
        ("x = \x00", "", "cannot be parsed as Python"),
        ("(" * 5000, "", "cannot be parsed as Python"),
        ("", "", "expected a function handle(data, context), or a class"),
        ("def hendle(data, context): ...", "", "found none"),
        ("class A: ...", "", "found A"),
        ("def f():\n    def handle(data, context): ...", "", "expected a function handle"),
        ("def handle(data, context): ...", "other", "expected a function named other"),
        (
            "class A:\n    def handle(self): ...\nclass B:\n    def handle(self): ...",
            "",
            "expected exactly one class with a method handle, or a function handle; found A, B",
        ),
        ("class A:\n    def handle(self): ...\nclass B(A): ...", "", "found A, B"),
    ],
)
def test_a_handler_without_an_entry_point_is_told_what_is_right(
    tmp_path: Path, code: str, entry: str, problem: str
) -> None:
    (tmp_path / "h.py").write_text(code)

    assert problem in (entry_point_problem(tmp_path / "h.py", entry) or "")


def test_a_real_safetensors_file_passes(tmp_path: Path) -> None:
    tensors = {
        "a": torch.zeros(3, 4),
        "b": torch.zeros(0, dtype=torch.int64),
        "c": torch.zeros(5, dtype=torch.bfloat16),
        "d": torch.zeros(2, dtype=torch.float8_e4m3fn),
        "e": torch.tensor(True),
    }
    save_file(tensors, tmp_path / "m.safetensors", metadata={"format": "pt"})

    assert header_problem(tmp_path / "m.safetensors") is None


def safetensors(header: object, data: bytes = b"") -> bytes:
    encoded = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(encoded)) + encoded + data


def tensor(*offsets: object, dtype: str = "F32", shape: Any = (1,)) -> dict[str, Any]:
    return {"w": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "not a safetensors file: 0 bytes"),
        (b"version https://git-lfs.github.com/spec/v1", "not a safetensors file, or cut off"),
        (struct.pack("<Q", 1 << 62), "not a safetensors file, or cut off"),
        (safetensors(b"{"), "header cannot be read"),
        (safetensors(b"\xff"), "header cannot be read"),
        (safetensors([]), "expected an object, got list"),
        (safetensors({"w": 1}), "tensor 'w': expected dtype, shape and data_offsets"),
        (safetensors(tensor(0, 4), b"12"), "is the file complete?"),
        (safetensors(tensor(4, 0), b"1234"), "bytes 4 to 0 are not within the 4"),
        (safetensors(tensor(0, 4, shape=[2]), b"1234"), "expected 8 bytes for F32 [2], got 4"),
        (safetensors(tensor(0, 4), b"1234more"), "expected 4 bytes of data, got 8"),
        (safetensors(tensor(0, 4, shape=[-1]), b"1234"), "expected dtype, shape"),
    ],
)
def test_a_broken_safetensors_file_is_named(tmp_path: Path, data: bytes, problem: str) -> None:
    (tmp_path / "m.safetensors").write_bytes(data)

    assert problem in (header_problem(tmp_path / "m.safetensors") or "")


@settings(max_examples=100, deadline=None)
@given(
    data=st.binary(max_size=60) | st.recursive(st.none() | st.integers(), st.lists).map(safetensors)
)
def test_any_bytes_are_judged_without_a_crash(
    data: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.safetensors"
    path.write_bytes(data)
    header_problem(path)


PARALLEL = (
    "{{parallelType: {}, torchrun: {{nproc-per-node: 2}},"
    " handler: {{mode: sequence_classification, model_parallel: true}}}}"
)
GOOD: dict[str, str | bytes | None] = {
    "config.json": '{"num_labels": 2, "architectures": ["XForTokenClassification"]}',
    "tokenizer.json": "{}",
    "model.safetensors": safetensors(tensor(0, 4), b"1234"),
    "model-config.yaml": "handler: {mode: sequence_classification, num_labels: 2}",
    "index_to_name.json": '{"0": "a", "1": "b"}',
}


def problems(
    tmp_path: Path, changes: dict[str, str | bytes | None], handler: str = "transformer_handler"
) -> str:
    content = {name: data for name, data in {**GOOD, **changes}.items() if data is not None}
    for name, data in content.items():
        (tmp_path / name).write_bytes(data.encode() if isinstance(data, str) else data)
    model = ManifestModel(
        model_name="m",
        model_version="1",
        handler=handler,
        config_file="model-config.yaml" if "model-config.yaml" in content else None,
        model_file="net.py" if "net.py" in content else None,
    )
    files = {name: tmp_path / name for name in content}
    report = check_files(files, Manifest(runtime="python", model=model))
    return "\n".join(report.problems)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"index_to_name.json": None},
        {"model-config.yaml": None},
        {"index_to_name.json": '{"object_type_names": ["x"]}'},
        {
            "index_to_name.json": '{"label_list": "[O, B]"}',
            "model-config.yaml": "handler: {mode: token_classification}",
        },
        {
            "index_to_name.json": '{"x": "y"}',
            "model-config.yaml": "handler: {mode: question_answering}",
        },
        {"model.safetensors": None, "pytorch_model.bin": "x"},
        {"config.json": '{"architectures": null}'},
    ],
)
def test_a_sound_transformer_has_no_problem(tmp_path: Path, changes: dict[str, str | None]) -> None:
    assert problems(tmp_path, dict(changes)) == ""


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"config.json": None}, "transformer_handler: expected the model's config.json among"),
        ({"model.safetensors": None}, "transformer_handler: expected weights"),
        ({"tokenizer.json": None}, "transformer_handler: expected the tokenizer's files among"),
        ({"model.safetensors": "x"}, "model.safetensors: not a safetensors file"),
        (
            {"model-config.yaml": None, "config.json": "{}"},
            "transformer_handler: expected a model-config.yaml (--config-file) with $.handler.mode",
        ),
        (
            {"model-config.yaml": "handler: {mode: sequences}"},
            "model-config.yaml: $.handler.mode: expected one of automatic_speech_recognition",
        ),
        (
            {"model-config.yaml": "handler: {mode: sequence_classification, num_labels: 3}"},
            "model-config.yaml: $.handler.num_labels: expected 2, as config.json has, got 3",
        ),
        (
            {"index_to_name.json": '{"0": "a"}'},
            "index_to_name.json: expected 2 labels (num_labels of config.json), got 1",
        ),
        (
            {"index_to_name.json": '{"1": "a", "2": "b"}'},
            'index_to_name.json: expected the keys "0" to "1", missing: 0',
        ),
        ({"index_to_name.json": "[]"}, "index_to_name.json: cannot be read as a JSON object"),
        ({"index_to_name.json": '{"label_list": ["a"]}'}, "expected one text such as [O, B-PER"),
        ({"config.json": "{"}, "config.json: cannot be read as a JSON object"),
        (
            {"model.safetensors.index.json": '{"weight_map": {"w": "model-2.safetensors"}}'},
            "model.safetensors.index.json: names model-2.safetensors, which is not in the archive",
        ),
        ({"model.safetensors.index.json": "{}"}, "expected the key 'weight_map'"),
        (
            {
                "model-config.yaml": "pt2: {compile: {enable: true}}\n"
                "handler: {mode: question_answering, save_mode: torchscript}"
            },
            "$.pt2.compile.enable: true cannot run with $.handler.save_mode: torchscript",
        ),
        (
            {
                "config.json": '{"num_labels": 2, "model_type": "bert", "num_attention_heads": 3}',
                "model-config.yaml": PARALLEL.format("tp"),
            },
            "config.json: parallelType: the model has 3 heads, which 2 ranks cannot share evenly",
        ),
        (
            {
                "config.json": '{"num_labels": 2, "model_type": "vit"}',
                "model-config.yaml": PARALLEL.format("tp"),
            },
            "models of type vit cannot be divided; there are bert, camembert",
        ),
        (
            {
                "config.json": '{"num_labels": 2, "model_type": "gpt2", "n_layer": 1}',
                "model-config.yaml": PARALLEL.format("pp"),
            },
            "the model has 1 layers, fewer than the 2 stages",
        ),
        (
            {
                "config.json": '{"model_type": "whisper", "is_encoder_decoder": true}',
                "model-config.yaml": "handler: {mode: automatic_speech_recognition,"
                " save_mode: onnx}",
            },
            "config.json: a model with encoder and decoder, such as this whisper, is two programs",
        ),
    ],
)
def test_a_problem_names_file_key_and_what_would_be_right(
    tmp_path: Path, changes: dict[str, str | None], problem: str
) -> None:
    assert problem in problems(tmp_path, dict(changes))


def test_requirements_are_text(tmp_path: Path) -> None:
    (tmp_path / "r.txt").write_bytes(b"\xff\xfe")
    model = ManifestModel(handler="base_handler", requirements_file="r.txt")
    report = check_files({"r.txt": tmp_path / "r.txt"}, Manifest(model=model))

    assert report.problems[0].startswith("r.txt: cannot be read as UTF-8 text")


def test_another_handler_is_checked_for_its_own_file(tmp_path: Path) -> None:
    only: dict[str, str | bytes | None] = dict.fromkeys(GOOD)

    assert problems(tmp_path, {**only, "h.py": "def handle(d, c): ..."}, "h.py") == ""
    assert problems(tmp_path, {**only, "h.py": "def f(d, c): ..."}, "h:f") == ""
    assert "h.py is not in the archive" in problems(tmp_path, dict(only), "h:f")
    assert "net.py: expected exactly one class" in problems(
        tmp_path, {**only, "net.py": "class A: ...\nclass B: ..."}, "base_handler"
    )
    labels = {"model-config.yaml": "handler: {num_labels: 3}", "index_to_name.json": '{"0": "a"}'}
    assert "expected 3 labels ($.handler.num_labels" in problems(
        tmp_path, {**only, **labels, "h.py": "def handle(d, c): ..."}, "h"
    )
