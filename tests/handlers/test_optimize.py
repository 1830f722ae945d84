"""`archive-model optimize` and `benchmark`, as commands and piece by piece."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
import yaml
from safetensors.numpy import save_file
from tests.handlers.conftest import TinyModel
from tests.handlers.exporting import pack, serve
from tests.handlers.serving import ask, load

from marserve.archiver.errors import ArchiveError, HandlerLoadError
from marserve.archiver.unpack import open_directory, unpack
from marserve.handlers.optimize.accuracy import Accuracy, Tolerance, compare
from marserve.handlers.optimize.candidates import CANDIDATES, choose_candidates
from marserve.handlers.optimize.choose import choose
from marserve.handlers.optimize.command import benchmark
from marserve.handlers.optimize.inputs import Cell, build_inputs
from marserve.handlers.optimize.process import TrialError, TrialProcess
from marserve.handlers.optimize.programs import Programs
from marserve.handlers.optimize.report import Report, Result, Timing
from marserve.handlers.optimize.rewrite import REPORT_NAME, rewrite
from marserve.handlers.optimize.samples import RANGES, divide
from marserve.handlers.optimize.study import Study

TASK = "sequence_classification"
TEXTS = ["a good film", "it was bad, and so long that i left", "the", "who is in new york?"] * 3
LIMIT_S = 500.0
GRID = ["--lengths", "8", "--batches", "1", "--real-rows", "12"]
QUICK = [*GRID, "--seconds", "0.01", "--threads", "1"]
FLAGS = benchmark.make_context("benchmark", ["ARCHIVE"]).params
pytestmark = pytest.mark.timeout(LIMIT_S)


@pytest.fixture(scope="module")
def archive(tiny_model: TinyModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("optimize")
    path = pack(tiny_model("bert", TASK), TASK, root)
    (path / "samples.txt").write_text("\n".join(TEXTS))
    return path


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [Path(sys.executable).parent / "archive-model", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )


@pytest.fixture(scope="module")
def optimized(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What one run of the command gave, with one mode that fails and one that does not."""
    root = tmp_path_factory.mktemp("optimized")
    target, report, picture = root / "best", root / "report.json", root / "report.png"
    files = ["--output", target, "--json", report, "--plot", picture]
    modes = "torchscript,eager-bf16"
    done = run("optimize", archive, "--modes", modes, "--tolerance", "1e-4", *QUICK, *files)
    assert done.returncode in (0, 3), done.stderr
    return {
        "done": done,
        "target": target,
        "report": json.loads(report.read_text()),
        "picture": picture,
    }


def test_a_mode_outside_the_tolerance_is_shown_and_told_by_the_status(
    optimized: dict[str, Any],
) -> None:
    row = next(line for line in optimized["done"].stdout.splitlines() if "eager-bf16" in line)

    assert optimized["done"].returncode == 3
    assert row.startswith("eager-bf16 FAILED")
    assert "eager-bf16: outside tolerance: differs by" in optimized["done"].stdout
    assert optimized["report"]["winner"] in ("eager", "torchscript")


def test_the_report_has_every_mode_with_all_its_numbers(optimized: dict[str, Any]) -> None:
    report = optimized["report"]
    results = report["results"]

    assert ["eager", "torchscript", "eager-bf16"] == list(results)
    assert report["compared"] == len(TEXTS)
    assert report["samples"] is True
    assert ["1x8"] == list(report["layer_gflops"])  # the other batch is padded
    assert 0 < report["layer_gflops"]["1x8"]
    assert "with the model's own matrices" in optimized["done"].stdout
    assert results["eager"]["accuracy"] == {"largest": 0.0, "agreement": 1.0}
    assert results["torchscript"]["state"] == "ok"
    assert 0 < results["eager-bf16"]["accuracy"]["largest"]
    for result in results.values():
        assert ["1x8", "12xreal"] == list(result["timings"])
        assert all(timing["runs"] >= 6 for timing in result["timings"].values())
        assert all(t["p50_ms"] <= t["p95_ms"] <= t["p99_ms"] for t in result["timings"].values())
        assert result["load_s"] > 0
        assert result["memory_mb"] > 50
        assert result["archive_mb"] > 0
    assert results["torchscript"]["archive_mb"] > results["eager"]["archive_mb"]


def test_the_picture_is_a_png(optimized: dict[str, Any]) -> None:
    assert optimized["picture"].read_bytes().startswith(b"\x89PNG")


def test_the_new_archive_has_the_winner_and_the_report(
    optimized: dict[str, Any], archive: Path
) -> None:
    target, winner = optimized["target"], optimized["report"]["winner"]
    config = yaml.safe_load((target / "model-config.yaml").read_text())
    inside = json.loads((target / REPORT_NAME).read_text())

    assert CANDIDATES[winner].source == config["handler"]["save_mode"]
    assert optimized["report"] == inside
    assert ask(serve(archive), TEXTS[:4]) == ask(serve(target), TEXTS[:4])


@pytest.mark.parametrize("name", ["torchscript", "unpadded"])
def test_the_archive_of_a_winner_answers_as_eager_does(
    archive: Path, tmp_path: Path, name: str
) -> None:
    original = open_directory(archive)
    programs = Programs(original, tmp_path, keep_weights=False, limit_s=LIMIT_S)
    report = Report({"threads": 1}, "tiny", 1, True, {}, winner=name)
    target = tmp_path / "new"
    rewrite(original, programs, CANDIDATES[name], report, target, tmp_path, force=False)
    found, right = serve(target), serve(archive)

    inputs = right.task.encode([{"text": text} for text in TEXTS]).inputs
    expected, actual = right.runner(inputs)["logits"], found.runner(inputs)["logits"]

    torch.testing.assert_close(actual, expected, atol=1e-4, rtol=0)
    assert (name != "torchscript") == (target / "model.safetensors").is_file()


def test_a_compiled_winner_brings_along_what_was_compiled(archive: Path, tmp_path: Path) -> None:
    original, kept = open_directory(archive), tmp_path / "cache"
    (kept / "ab").mkdir(parents=True)
    (kept / "ab" / "code.so").write_bytes(b"machine code")
    (kept / "ab" / "code.lock").touch()
    programs = Programs(original, tmp_path, keep_weights=True, limit_s=LIMIT_S)
    report = Report({"threads": 1}, "tiny", 1, True, {}, winner="compiled")
    target, mode = tmp_path / "new.mar", CANDIDATES["compiled"]
    rewrite(original, programs, mode, report, target, tmp_path, force=False, compiled=kept)
    (tmp_path / "opened").mkdir()
    new = unpack(target, tmp_path / "opened")

    assert "compile-cache" == new.config.handler.compile_cache
    assert b"machine code" == (new.directory / "compile-cache" / "ab" / "code.so").read_bytes()
    assert not (new.directory / "compile-cache" / "ab" / "code.lock").exists()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"modes": "eager,fast"}, "no mode 'fast'; there are: eager, unpadded"),
        ({"batches": "1,x"}, "--batches: expected numbers above 0 with commas, got '1,x'"),
        ({"batches": "", "real_rows": 0}, "leave nothing to measure"),
        ({"sample": Path("none.txt")}, "--sample: none.txt: there is no such file"),
    ],
)
def test_wrong_flags_are_told_before_anything_is_measured(
    archive: Path, flags: dict[str, Any], message: str
) -> None:
    with pytest.raises(ArchiveError, match=re.escape(message)):
        Study({**FLAGS, "archive": archive, **flags})


def test_an_existing_target_is_kept(archive: Path, tmp_path: Path) -> None:
    target = tmp_path / "there.mar"
    target.write_text("mine")
    done = run("optimize", archive, "--output", target)

    assert done.returncode == 1
    assert "already exists: give --force/-f" in done.stderr
    assert target.read_text() == "mine"


def test_a_mode_that_cannot_be_loaded_says_why(archive: Path, tmp_path: Path) -> None:
    job = tmp_path / "job.json"
    manifest = open_directory(archive).manifest.as_dict()
    plain: dict[str, Any] = {
        "directory": str(tmp_path),
        "config": {},
        "serialized_file": None,
        "threads": 1,
    }
    job.write_text(json.dumps({**plain, "manifest": manifest}))

    with pytest.raises(TrialError, match=r"config\.json"):
        TrialProcess(job, 1, LIMIT_S)


def test_a_mode_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    with pytest.raises(TrialError, match=r"took longer than 0\.01 s"):
        TrialProcess(tmp_path / "job.json", 1, 0.01)


def test_a_process_that_dies_is_told(tmp_path: Path) -> None:
    with pytest.raises(TrialError, match=r"job\.json"):
        TrialProcess(tmp_path / "job.json", 1, LIMIT_S)


@pytest.mark.parametrize(
    ("given", "ranges", "compared"),
    [
        (3, (0, 3), (0, 3)),
        (2 * RANGES - 1, (0, RANGES), (0, 2 * RANGES - 1)),
        (2 * RANGES, (0, RANGES), (RANGES, 2 * RANGES)),
        (3000, (0, RANGES), (RANGES, RANGES + 2000)),
    ],
)
def test_ranges_are_measured_on_other_texts_than_answers_where_there_are_enough(
    tmp_path: Path, given: int, ranges: tuple[int, int], compared: tuple[int, int]
) -> None:
    path, texts = tmp_path / "samples.txt", [f"text {at}" for at in range(given)]
    path.write_text("\n".join(texts))
    found = divide(path, tmp_path)

    assert found.ranges
    assert json.loads(found.ranges.read_text()) == texts[slice(*ranges)]
    assert found.compared
    assert json.loads(found.compared.read_text()) == texts[slice(*compared)]


def test_programs_are_found_again_for_the_same_archive_and_samples(
    archive: Path, tmp_path: Path
) -> None:
    original, kept, ranges = open_directory(archive), tmp_path / "kept", tmp_path / "ranges.txt"
    mode = CANDIDATES["torchscript"]

    def made(samples: Path | None = None, *, keep: bool = True, limit_s: float = 0.01) -> Path:
        return Programs(original, kept, keep, limit_s, samples).archive_for(mode).directory

    first = made(limit_s=LIMIT_S)
    (first / "marked").touch()
    assert (made() / "marked").is_file()
    ranges.write_text("other texts")
    for other in (partial(made, keep=False), partial(made, ranges)):
        with pytest.raises(TrialError, match="took longer"):  # for it is made anew
            other()


def test_a_grid_of_real_tokens(tiny_model: TinyModel) -> None:
    handler = load(tiny_model("bert", TASK))
    cells = [Cell(1, 8), Cell(3, 10_000), Cell(12, None)]
    found = build_inputs(handler, TEXTS, cells)
    real = found["12xreal"]

    assert ["1x8", "12xreal", "accuracy0"] == list(found)
    assert (1, 8) == tuple(found["1x8"]["input_ids"].shape)
    assert found["1x8"]["attention_mask"].all()
    assert torch.equal(real["input_ids"], found["accuracy0"]["input_ids"])
    assert not real["attention_mask"].all()


def test_a_grid_of_random_tokens_is_the_same_each_time(tiny_model: TinyModel) -> None:
    handler = load(tiny_model("bert", TASK))
    one, two = (build_inputs(handler, None, [Cell(32, None)]) for _ in range(2))
    lengths = one["32xreal"]["attention_mask"].sum(1)

    assert 64 == sum(len(b["input_ids"]) for name, b in one.items() if name.startswith("accuracy"))
    assert len(set(lengths.tolist())) > 4
    assert all(torch.equal(one[b][name], two[b][name]) for b in one for name in one[b])


def test_models_that_generate_are_refused(tiny_model: TinyModel) -> None:
    handler = load(tiny_model("gpt2", "text_generation"), mode="text_generation")

    with pytest.raises(HandlerLoadError, match="piece by piece"):
        build_inputs(handler, None, [Cell(1, 8)])


def write(path: Path, values: list[float], top: list[int]) -> Path:
    save_file({"values|logits": numpy.array(values), "top|logits": numpy.array(top)}, path)
    return path


@pytest.mark.parametrize(
    ("values", "top", "problem"),
    [
        ([1.0, 2.0005], [0, 1], None),
        ([1.0, 2.5], [0, 1], "differs by 0.5, allowed is 0.001"),
        ([1.0, math.nan], [0, 1], "differs by inf, allowed is 0.001"),
        ([1.0, 2.0], [1, 1], "agrees in 50.0%, needed is 99.0%"),
    ],
)
def test_outputs_are_compared(
    tmp_path: Path, values: list[float], top: list[int], problem: str | None
) -> None:
    right = write(tmp_path / "right", [1.0, 2.0], [0, 1])
    found = compare(right, write(tmp_path / "found", values, top))

    assert problem == found.problem(Tolerance(), "float32")


def test_int8_is_held_by_its_answers_alone() -> None:
    assert Accuracy(5.0, 0.99).problem(Tolerance(), "int8") is None
    assert Accuracy(0.0, 0.98).problem(Tolerance(), "int8") is not None
    assert Accuracy(5.0, 0.99).problem(Tolerance(largest=1.0), "int8") is not None


def result(one_ms: float, many_ms: float, memory_mb: float, state: Any = "ok") -> Result:
    timings = {"1x16": Timing(1, [one_ms]), "32xreal": Timing(32, [many_ms])}
    return Result(state, "", 1.0, memory_mb, 1.0, Accuracy(0, 1), timings)


@pytest.mark.parametrize(
    ("target", "best"), [("latency", "onnx"), ("throughput", "unpadded"), ("memory", "openvino")]
)
def test_the_best_mode_depends_on_the_target(target: Any, best: str) -> None:
    report = Report({}, "m", 1, True, {})
    report.results = {
        "eager": result(10, 100, 100),
        "onnx": result(4, 90, 120),
        "onnx-unpadded": result(4.1, 95, 120),  # as good but for noise: the next measure decides
        "unpadded": result(10, 30, 100),
        "openvino": result(11, 110, 50),
        "onnx-int8": result(1, 1, 1, "outside tolerance"),
        "compiled": Result("cannot run", "no compiler"),
    }

    assert best == choose(report, target)


def test_int8_is_tried_only_if_asked() -> None:
    usual = choose_candidates([], allow_quantized=False, has_gpu=False)
    more = choose_candidates([], allow_quantized=True, has_gpu=False)

    assert {"eager", "unpadded", "compiled", "onnx", "openvino", "aot_inductor"} <= {*usual}
    assert [] == [name for name, mode in usual.items() if mode.numbers == "int8"]
    assert {"onnx-int8", "openvino-int8"} <= {*more}
    assert ["eager", "onnx"] == [*choose_candidates(["onnx"], False, False)]
    with pytest.raises(ArchiveError, match="no mode"):
        choose_candidates(["quick"], False, False)


def test_percentiles_are_times_that_were_seen() -> None:
    timing = Timing(4, [float(time) for time in range(100, 0, -1)])

    assert (50, 95, 99) == tuple(timing.percentile_ms(percent) for percent in (50, 95, 99))
    assert 80 == timing.rows_per_s


@pytest.mark.parametrize(
    ("section", "options"),
    [
        (None, {}),
        ("inductor", {"backend": "inductor"}),
        ({"mode": "reduce-overhead"}, {"mode": "reduce-overhead"}),
        ({"compile": {"enable": False, "backend": "eager"}}, {"backend": "eager"}),
        ({"export": {"aot_compile": True}}, {}),
    ],
)
def test_compiling_keeps_the_options_of_the_archive(section: Any, options: Any) -> None:
    raw = {"minWorkers": 2, "pt2": section, "handler": {"save_mode": "onnx", "max_length": 9}}
    found = CANDIDATES["compiled"].config(raw)

    assert {"compile": {**options, "enable": True}} == found["pt2"]
    assert 2 == found["minWorkers"]
    assert 9 == found["handler"]["max_length"]
    assert "pretrained" == found["handler"]["save_mode"]
    assert "pt2" not in CANDIDATES["eager"].config(raw)


def test_a_report_is_json_whatever_was_measured() -> None:
    report = Report({}, "m", 1, True, {"largest": math.inf, "agreement": 0.99})
    report.results = {"eager": Result(accuracy=Accuracy(math.inf, 0.5))}
    text = json.dumps(report.as_dict(), allow_nan=False)

    assert '"largest": "infinite", "agreement": 0.5' in text
