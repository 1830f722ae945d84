from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from tests.handlers.exporting import Exported, exported, outputs, pack, serve
from tests.handlers.serving import TEXTS, ask

from marserve.archiver.errors import ArchiveError, ConfigError, HandlerLoadError
from marserve.archiver.inspection import verify_archive
from marserve.handlers.errors import RequestError
from marserve.handlers.export.archive import ExportSpec, export_archive
from marserve.handlers.runners.onnx import OnnxProgram

__all__ = ["exported"]

TASKS = {
    "sequence_classification": "bert",
    "token_classification": "distilbert",
    "question_answering": "roberta",
    "text_generation": "gpt2",
}
EXACT = ("torchscript", "exported", "onnx", "openvino")
QUANTIZED = {"onnx": "int8_dynamic", "openvino": "int8_weight_only"}
INT8_TASKS = ("sequence_classification", "text_generation")
MATRIX = [
    *((task, kind, source) for task, kind in TASKS.items() for source in EXACT),
    ("question_answering", "bert", "openvino"),  # with token types
    ("text_generation", "llama", "exported"),
]

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")


def assert_equal_answers(eager: Path, other: Path, task: str) -> None:
    right, found = serve(eager), serve(other)
    for rows in (1, 2, 5):
        texts = [TEXTS[task][at % 2] for at in range(rows)]
        assert ask(right, texts) == ask(found, texts)
    if task == "sequence_classification":
        texts = ["the film " * length for length in (1, 200, 7, 63)] * 5
        assert ask(right, texts) == ask(found, texts)
    for rows in (1, 5):
        for name, values in outputs(right, task, rows).items():
            actual = outputs(found, task, rows)[name]
            torch.testing.assert_close(values, actual, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(("task", "kind", "source"), MATRIX)
def test_every_source_answers_as_eager_does(
    exported: Exported, task: str, kind: str, source: str
) -> None:
    archive = exported(kind, task, source)

    assert [] == verify_archive(archive)
    assert (
        source
        == yaml.safe_load((archive / "model-config.yaml").read_text())["handler"]["save_mode"]
    )
    assert_equal_answers(exported(kind, task), archive, task)


@needs_compiler
@pytest.mark.timeout(900)  # it compiles C++, on a machine that may be busy
@pytest.mark.parametrize(("task", "kind"), TASKS.items())
def test_a_compiled_package_answers_as_eager_does(exported: Exported, task: str, kind: str) -> None:
    import torch._inductor.config as compiler

    with compiler.patch({"aot_inductor.compile_wrapper_opt_level": "O0"}):  # it compiles sooner
        archive = exported(kind, task, "aot_inductor")

    assert_equal_answers(exported(kind, task), archive, task)


@pytest.mark.parametrize(
    ("task", "source", "quantization"),
    [
        *((task, *pair) for task in INT8_TASKS for pair in QUANTIZED.items()),
        ("sequence_classification", "onnx", "int8_weight_only"),
    ],
)
def test_weights_of_8_bits_come_near(
    exported: Exported, task: str, source: str, quantization: str
) -> None:
    kind = TASKS[task]
    archive = exported(kind, task, source, quantization)
    right, found = serve(exported(kind, task)), serve(archive)

    assert size(archive, source) < size(exported(kind, task, source), source)
    for rows in (1, 5):
        expected, actual = outputs(right, task, rows), outputs(found, task, rows)
        for name, values in expected.items():
            difference = (values - actual[name]).norm() / values.norm()
            assert 1e-4 < difference < 0.1


def size(archive: Path, source: str) -> int:
    pattern = "model.onnx*" if source == "onnx" else "model.bin"
    return sum(path.stat().st_size for path in archive.glob(pattern))


def test_batches_are_sorted_by_length_around_a_program(exported: Exported) -> None:
    kind, task = "bert", "sequence_classification"
    texts = ["the film " * length for length in (1, 60, 2, 40, 3, 9)]

    found = serve(exported(kind, task, "onnx"), BetterTransformer=True)

    assert ask(serve(exported(kind, task)), texts) == ask(found, texts)


class TestExplanations:
    def test_are_those_of_the_weights_beside_the_program(self, exported: Exported) -> None:
        kind, task = "bert", "sequence_classification"
        expected = ask(serve(exported(kind, task)), ["a good film"], explain=True)

        for source in ("onnx", "torchscript", "openvino"):
            assert expected == ask(
                serve(exported(kind, task, source)), ["a good film"], explain=True
            )

    def test_without_weights_there_are_none(self, exported: Exported, tmp_path: Path) -> None:
        target = tmp_path / "tiny"
        export(exported, target, keep_weights=False)
        handler = serve(target)

        with pytest.raises(RequestError, match="weights") as raised:
            ask(handler, ["a"], explain=True)
        assert raised.value.status == 501
        assert [] == [path.name for path in target.iterdir() if path.suffix == ".safetensors"]
        assert ask(handler, ["a"]) == ask(serve(exported("bert", "sequence_classification")), ["a"])


def export(exported: Exported, target: Path, **spec: Any) -> None:
    archive = exported("bert", "sequence_classification")
    export_archive(
        ExportSpec(**{"archive": archive, "target": target, "source": "torchscript", **spec})
    )


def copy(exported: Exported, target: Path) -> Path:
    return Path(shutil.copytree(exported("bert", "sequence_classification"), target / "m"))


class TestArchives:
    def test_one_mode_is_made_from_another(self, exported: Exported, tmp_path: Path) -> None:
        export(exported, tmp_path / "a.mar", source="openvino")
        export(exported, tmp_path / "b", archive=tmp_path / "a.mar", source="torchscript")

        names = {path.name for path in (tmp_path / "b").iterdir()}

        assert {"traced_model.pt", "model.safetensors"} < names
        assert not {"model.xml", "model.bin"} & names
        assert_equal_answers(
            exported("bert", "sequence_classification"), tmp_path / "b", "sequence_classification"
        )

    def test_weights_under_a_name_of_their_own_are_kept_under_their_usual_one(
        self, exported: Exported, tmp_path: Path
    ) -> None:
        original = Path(
            shutil.copytree(exported("bert", "sequence_classification"), tmp_path / "m")
        )
        (original / "model.safetensors").rename(original / "own.safetensors")
        manifest = original / "MAR-INF" / "MANIFEST.json"
        manifest.write_text(manifest.read_text().replace("model.safetensors", "own.safetensors"))

        export(exported, tmp_path / "out", archive=original)

        names = {path.name for path in (tmp_path / "out").iterdir()}
        assert "model.safetensors" in names
        assert "own.safetensors" not in names
        assert "words" in ask(serve(tmp_path / "out"), ["a"], explain=True)[0]

    def test_what_another_mode_alone_has_is_left_out(
        self, exported: Exported, tmp_path: Path
    ) -> None:
        original = Path(
            shutil.copytree(exported("bert", "sequence_classification"), tmp_path / "m")
        )
        config = original / "model-config.yaml"
        content = yaml.safe_load(config.read_text())
        content["handler"] |= {"dtype": "bfloat16", "max_length": 40, "BetterTransformer": True}
        content |= {"pt2": {"compile": {"enable": True}}, "batchSize": 4}
        config.write_text(yaml.safe_dump(content))

        export(exported, tmp_path / "out", archive=original)

        found = yaml.safe_load((tmp_path / "out" / "model-config.yaml").read_text())
        assert found["batchSize"] == 4
        assert "pt2" not in found
        assert "dtype" not in found["handler"]
        assert found["handler"]["max_length"] == 40
        assert found["handler"]["save_mode"] == "torchscript"
        assert "traced_model.pt" in (tmp_path / "out" / "MAR-INF" / "MANIFEST.json").read_text()

    @pytest.mark.parametrize(
        ("spec", "error", "message"),
        [
            (
                {"source": "onnx", "quantization": "int8_dynamic", "tolerance": 1e-6},
                HandlerLoadError,
                r"does not answer as the eager model.*1e-06",
            ),
            (
                {"quantization": "int8_dynamic"},
                ConfigError,
                r"quantization: int8_dynamic cannot run with.*torchscript",
            ),
            ({"target": Path("x.zip")}, ArchiveError, r"ends in \.mar or \.tar\.gz"),
        ],
    )
    def test_what_cannot_be_made_is_not_written(
        self,
        exported: Exported,
        tmp_path: Path,
        spec: dict[str, Any],
        error: type[Exception],
        message: str,
    ) -> None:
        target = tmp_path / spec.pop("target", "out.mar")

        with pytest.raises(error, match=message):
            export(exported, target, **spec)
        assert [] == list(tmp_path.iterdir())

    def test_an_existing_archive_stays_unless_forced(
        self, exported: Exported, tmp_path: Path
    ) -> None:
        target = tmp_path / "a.mar"
        target.write_bytes(b"mine")

        with pytest.raises(ArchiveError, match="already exists"):
            export(exported, target)
        assert target.read_bytes() == b"mine"

        export(exported, target, force=True)
        assert [] == verify_archive(target)

    def test_needs_weights(self, exported: Exported, tmp_path: Path) -> None:
        export(exported, tmp_path / "bare", keep_weights=False)

        with pytest.raises(HandlerLoadError, match=r"no weights, only traced_model\.pt"):
            export(exported, tmp_path / "x", archive=tmp_path / "bare", source="exported")

    def test_needs_the_transformer_handler(self, exported: Exported, tmp_path: Path) -> None:
        original = Path(
            shutil.copytree(exported("bert", "sequence_classification"), tmp_path / "m")
        )
        manifest = original / "MAR-INF" / "MANIFEST.json"
        manifest.write_text(manifest.read_text().replace("transformer_handler", "base_handler"))

        with pytest.raises(ArchiveError, match="only archives of transformer_handler"):
            export(exported, tmp_path / "out", archive=original)


class TestSamples:
    @pytest.mark.parametrize(
        ("name", "content"),
        [
            ("a.txt", "the film\n\nit was good, so good\n"),
            ("a.json", '["the film", {"text": "it was good"}]'),
            ("b.json", '{"text": "it was good"}'),
        ],
    )
    def test_are_read_from_a_file(
        self, exported: Exported, tmp_path: Path, name: str, content: str
    ) -> None:
        (tmp_path / name).write_text(content)

        export(exported, tmp_path / "out", samples=tmp_path / name)

        assert (tmp_path / "out" / "traced_model.pt").is_file()

    @pytest.mark.parametrize(
        ("content", "message"),
        [("", "is empty"), ('[{"txt": 1}]', 'no "text"'), ("{", "is no JSON"), (None, "read")],
    )
    def test_what_is_wrong_is_said(
        self, exported: Exported, tmp_path: Path, content: str | None, message: str
    ) -> None:
        path = tmp_path / ("a.json" if content else "a.txt")
        if content is not None:
            path.write_text(content)

        with pytest.raises(HandlerLoadError, match=message):
            export(exported, tmp_path / "out", samples=path)


class TestEngines:
    def test_threads_are_those_that_the_worker_was_told(self, exported: Exported) -> None:
        archive = exported("bert", "sequence_classification", "onnx")
        program: Any = serve(archive).runner._program  # type: ignore[attr-defined]
        assert isinstance(program, OnnxProgram)
        before = torch.get_num_threads()
        ids = torch.ones((1, 4), dtype=torch.int64)
        try:
            for count in (1, 2):
                torch.set_num_threads(count)
                program({"input_ids": ids, "attention_mask": ids, "token_type_ids": ids * 0})
                options = program._session.get_session_options()
                assert count == options.intra_op_num_threads
        finally:
            torch.set_num_threads(before)

    def test_openvino_tells_nobody_that_it_is_used(self, exported: Exported) -> None:
        serve(exported("bert", "sequence_classification", "openvino"))

        assert "openvino" in sys.modules
        assert sys.modules.get("openvino_telemetry") is None

    @pytest.mark.parametrize(
        ("source", "package"), [("onnx", "onnxruntime"), ("openvino", "openvino")]
    )
    def test_a_missing_package_is_named(
        self, exported: Exported, source: str, package: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        archive = exported("bert", "sequence_classification", source)
        monkeypatch.setitem(sys.modules, package, None)

        with pytest.raises(HandlerLoadError, match=rf"pip install\s+marserve\[{source}\]"):
            serve(archive)

    @pytest.mark.parametrize("source", ["onnx", "openvino"])
    def test_numbers_that_the_file_has_not_are_an_error(
        self, exported: Exported, source: str
    ) -> None:
        archive = exported("bert", "sequence_classification", source)

        with pytest.raises(HandlerLoadError, match=r"quantization.*was not made so"):
            serve(archive, quantization=QUANTIZED[source])

    @pytest.mark.parametrize(
        ("source", "file", "message"),
        [
            ("onnx", "model.onnx", "is no ONNX model"),
            ("openvino", "model.xml", "is no OpenVINO model"),
            ("exported", "model.pt2", "is no zip archive"),
        ],
    )
    def test_damaged_files_are_named(
        self, exported: Exported, tmp_path: Path, source: str, file: str, message: str
    ) -> None:
        original = exported("bert", "sequence_classification", source)
        archive = Path(shutil.copytree(original, tmp_path / "m"))
        (archive / file).write_bytes(b"something else")

        with pytest.raises(HandlerLoadError, match=rf"{file}: {message}"):
            serve(archive)

    def test_a_program_is_no_package(self, exported: Exported, tmp_path: Path) -> None:
        archive = exported("bert", "sequence_classification", "exported")

        with pytest.raises(HandlerLoadError, match="expected save_mode: exported"):
            serve(archive, save_mode="aot_inductor")


def test_numbers_of_16_bits_have_a_tolerance_of_their_own(
    exported: Exported, tmp_path: Path
) -> None:
    task = "sequence_classification"
    packed = pack(exported("bert", task), task, tmp_path / "in", dtype="bfloat16")

    export(exported, tmp_path / "out", archive=packed)

    right = outputs(serve(packed), task, 3)["logits"]
    found = outputs(serve(tmp_path / "out"), task, 3)["logits"]
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(right, found, atol=1e-2, rtol=1e-2)
