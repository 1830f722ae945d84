from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._inductor.config
import transformers
from tests.handlers.conftest import TinyModel
from tests.handlers.serving import TEXTS, ask, load
from torch._dynamo.utils import counters

from marserve.handlers.runners.base import RunnerOptions, probe
from marserve.handlers.runners.compiled import CompiledRunner
from marserve.handlers.runners.compiled import load as load_compiled
from marserve.handlers.runners.eager import load as load_eager

GRAPHS = {"pt2": {"compile": {"enable": True, "backend": "eager"}}}  # traced, then run as it is
TASK = "sequence_classification"


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    torch.compiler.reset()
    counters.clear()
    with torch._inductor.config.patch(compile_threads=1):
        yield
    torch.compiler.reset()


def graphs() -> int:
    return int(counters["stats"]["unique_graphs"])


@pytest.mark.parametrize("kind", ["bert", "distilbert"])
def test_no_request_waits_for_the_compiler(tiny_model: TinyModel, kind: str) -> None:
    handler = load(tiny_model(kind, TASK), GRAPHS)
    compiled = graphs()

    for rows, tokens in ((1, 3), (1, 30), (2, 5), (7, 31), (32, 12)):
        handler.runner(probe(rows, tokens, handler.runner))

    assert 0 < compiled == graphs()


def test_eager_answers_until_the_model_is_compiled(
    tiny_model: TinyModel, caplog: pytest.LogCaptureFixture
) -> None:
    eager = load(tiny_model("bert", TASK))
    handler = load(tiny_model("bert", TASK), GRAPHS, compile_in_background=True)
    runner: Any = handler.runner

    before = ask(handler, TEXTS[TASK])
    runner.compiling.join()
    compiled = graphs()
    after = ask(handler, TEXTS[TASK])

    assert before == after == ask(eager, TEXTS[TASK])
    assert 0 < compiled == graphs()
    assert runner._forward is runner._compiled
    assert "compiled now" in caplog.text


def test_what_cannot_be_compiled_in_the_background_stays_eager(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Odd(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(1))

        def forward(self, input_ids: torch.Tensor) -> dict[str, torch.Tensor]:
            if torch.compiler.is_compiling():
                raise ValueError("not while tracing")
            return {"logits": input_ids * self.weight}

    options = {"backend": "eager", "fullgraph": True}
    runner = CompiledRunner(Odd().eval(), ("logits",), options, in_background=True)
    runner.warm_up()
    assert runner.compiling is not None
    runner.compiling.join()

    assert torch.equal(torch.zeros(1, 4), runner(probe(1, 4, runner))["logits"])
    assert "it keeps running eagerly" in caplog.text
    assert "compiled now" not in caplog.text


def small(directory: Path, width: int = 16, seed: int = 0) -> RunnerOptions:
    """A model that is soon compiled, and where its code is kept."""
    config = transformers.BertConfig(
        vocab_size=99,
        hidden_size=width,
        num_hidden_layers=0,  # a compiler takes its time for each
        num_attention_heads=2,
        intermediate_size=32,
    )
    torch.manual_seed(seed)
    transformers.BertForSequenceClassification(config).save_pretrained(directory)
    return RunnerOptions(
        directory=directory,
        auto_class="AutoModelForSequenceClassification",
        output_names=("logits",),
        device=torch.device("cpu"),
        config=config,
        compile_cache="compiled",
    )


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of PyTorch about itself
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
def test_the_next_start_finds_what_was_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "not here"))
    options = small(tmp_path)

    first = load_compiled(options)
    expected = first(probe(1, 9, first))["logits"]
    missed = counters["inductor"]["fxgraph_cache_miss"]
    torch.compiler.reset()
    counters.clear()
    (tmp_path / "compiled").rename(tmp_path / "moved")  # as with an archive that is elsewhere now
    second = load_compiled(replace(options, compile_cache="moved"))
    actual = second(probe(1, 9, second))["logits"]

    assert 0 < missed == counters["inductor"]["fxgraph_cache_hit"]
    assert counters["inductor"]["fxgraph_cache_miss"] == 0
    assert torch.equal(expected, actual)
    assert any((tmp_path / "moved").rglob("*.so"))
    assert not (tmp_path / "compiled").exists()
    assert not (tmp_path / "not here").exists()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of PyTorch about itself
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
def test_the_next_start_traces_nothing(tmp_path: Path) -> None:
    options = small(tmp_path)
    eager = load_eager(options)
    shapes = ((1, 3), (1, 40), (2, 5), (9, 12))

    first = load_compiled(options)
    first.warm_up()
    torch.compiler.reset()
    counters.clear()
    second = load_compiled(options)
    second.warm_up()

    for batch in (probe(*shape, eager) for shape in shapes):
        expected = eager(batch)["logits"]
        torch.testing.assert_close(first(batch)["logits"], expected)
        torch.testing.assert_close(second(batch)["logits"], expected)
    trained = small(tmp_path, seed=1)
    third = load_compiled(trained)
    third.warm_up()
    batch = probe(2, 5, third)
    torch.testing.assert_close(third(batch)["logits"], load_eager(trained)(batch)["logits"])
    assert not torch.allclose(third(batch)["logits"], second(batch)["logits"])
    assert 0 == graphs()  # the weights are not in them


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of PyTorch about itself
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
def test_graphs_of_another_model_and_broken_ones_are_not_used(
    tmp_path: Path,
) -> None:
    load_compiled(small(tmp_path)).warm_up()
    (kept,) = (tmp_path / "compiled").glob("*.graphs")
    kept.write_bytes(b"no graphs")

    broken = load_compiled(small(tmp_path))
    broken.warm_up()
    wider = load_compiled(small(tmp_path, width=32))
    wider.warm_up()

    for runner in (broken, wider):
        batch = probe(3, 7, runner)
        with torch.inference_mode():
            expected = runner.module(**batch).logits
        torch.testing.assert_close(runner(batch)["logits"], expected)
    assert 2 == len(list((tmp_path / "compiled").glob("*.graphs")))
    assert kept.read_bytes() != b"no graphs"
