"""Several processes that share one model answer as one that has it whole."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tests import media_models, tiny_models

from marserve.archiver.errors import HandlerLoadError
from marserve.archiver.parallel import DIVISIBLE, PIPELINED
from marserve.handlers.parallel.grid import Place, find_place
from marserve.handlers.parallel.plans import PLANS, find_plan

TOLERANCE = 1e-5
SCRIPT = Path(__file__).parent / "ranks.py"
TASKS = {
    "bert": "sequence_classification",
    "roberta": "token_classification",
    "distilbert": "question_answering",
    "gpt2": "text_generation",
    "llama": "text_generation",
}


def together(folder: Path, cases: list[dict[str, Any]], ranks: int = 2) -> dict[str, float]:
    """Runs cases in several processes; returns how far each is from one process alone."""
    (folder / "cases.json").write_text(json.dumps(cases))
    variables = {
        **os.environ,
        "WORLD_SIZE": str(ranks),
        "MARSERVE_RANK_STORE": str(folder / "store"),
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
    }
    processes = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), str(folder)],
            env={**variables, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    try:
        said = [process.communicate(timeout=400) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [0] * ranks == [process.returncode for process in processes], said
    found: dict[str, float] = json.loads(said[0][0])
    return found


def case(name: str, directory: Path, auto_class: str, parallel: str, **more: Any) -> dict[str, Any]:
    given = {"name": name, "directory": str(directory), "auto_class": auto_class}
    return {**given, "parallel": parallel, "decodes": False, **more}


def tiny_cases(folder: Path, kinds: tuple[str, ...], *parallel: str) -> Iterator[dict[str, Any]]:
    for kind in kinds:
        task = TASKS[kind]
        directory = tiny_models.build(kind, task, folder / kind)
        decodes, auto = task == "text_generation", tiny_models.AUTO_CLASSES[task]
        names = {"output_names": ["start_logits", "end_logits"]} if "question" in task else {}
        for each in parallel:
            yield case(f"{kind} {each}", directory, auto, each, decodes=decodes, **names)


def saved(folder: Path, name: str, model: Any) -> Path:
    for parameter in model.parameters():  # tiny initial weights would make all answers alike
        parameter.data.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder / name)
    return folder / name


def further_cases(folder: Path) -> Iterator[dict[str, Any]]:
    """Models of which there is no tiny one with a tokenizer."""
    small = {
        "vocab_size": 64,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 64,
    }
    for kind in ("mistral", "qwen2"):
        config = transformers.AutoConfig.for_model(kind, **small)
        model = transformers.AutoModelForCausalLM.from_config(config)
        directory = saved(folder, kind, model)
        yield case(f"{kind} tp", directory, "AutoModelForCausalLM", "tp", decodes=True)
    names = ["input_ids", "attention_mask", "decoder_input_ids"]
    seq2seq = {"decodes": True, "input_names": names}
    for kind, gated in (("t5", False), ("t5 gated", True)):
        model = media_models.t5()[0]
        if gated:
            model.config.update({"feed_forward_proj": "gated-gelu", "tie_word_embeddings": True})
            config = type(model.config).from_dict(model.config.to_dict())
            model = type(model)(config)
        directory = saved(folder, kind, model)
        yield case(f"{kind} tp", directory, "AutoModelForSeq2SeqLM", "tp", **seq2seq)


def test_two_ranks_answer_as_one_process(tmp_path: Path) -> None:
    torch.manual_seed(3)
    cases = [*tiny_cases(tmp_path, tuple(TASKS), "tp", "pp"), *further_cases(tmp_path)]

    found = together(tmp_path, cases)

    assert {c["name"] for c in cases} == found.keys()
    assert {} == {name: value for name, value in found.items() if value > TOLERANCE}


def test_a_pipeline_of_shards_answers_as_one_process(tmp_path: Path) -> None:
    found = together(tmp_path, [*tiny_cases(tmp_path, ("bert", "gpt2"), "pptp")], ranks=4)

    assert {} == {name: value for name, value in found.items() if value > TOLERANCE}
    assert 2 == len(found)


def test_a_rank_holds_no_more_than_its_part_of_what_is_divided(tmp_path: Path) -> None:
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    for name, size in (("small", 32), ("large", 1024)):
        config = transformers.AutoConfig.for_model(
            "gpt2", vocab_size=64, n_positions=64, n_embd=size, n_layer=2, n_head=8, **ends
        )
        model = transformers.AutoModelForCausalLM.from_config(config)
        saved(tmp_path, name, model)
    divided = sum(p.nbytes for name, p in model.named_parameters() if ".h." in name)
    del model

    # The small one first: what is imported and connected once is not counted.
    auto = "AutoModelForCausalLM"
    small, large = (case(n, tmp_path / n, auto, "tp", weigh=True) for n in ("small", "large"))
    together(tmp_path, [small, large])

    held = [int((tmp_path / f"bytes-{rank}").read_text()) for rank in range(2)]
    assert all(0.45 * divided < size < 0.65 * divided for size in held), (held, divided)


@pytest.mark.parametrize(
    ("kind", "more", "stages", "shards", "message"),
    [
        ("bert", {"num_attention_heads": 3, "hidden_size": 48}, 1, 2, "3 heads, which 2 ranks"),
        ("llama", {"num_attention_heads": 4, "num_key_value_heads": 1}, 1, 2, "4 and 1 heads"),
        ("t5", {}, 2, 1, "a pipeline cannot cut models of type t5"),
        ("vit", {}, 1, 2, "models of type vit cannot be divided; there are bert, "),
        ("gpt2", {"n_layer": 2}, 3, 1, "2 layers, fewer than the 3 stages"),
    ],
)
def test_what_cannot_be_divided_is_said(
    kind: str, more: dict[str, int], stages: int, shards: int, message: str
) -> None:
    config = transformers.AutoConfig.for_model(kind, **more)

    with pytest.raises(HandlerLoadError, match=message):
        find_plan(config, stages, shards)


def test_ranks_are_arranged_stage_by_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARSERVE_RANK_STORE", "store")
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("RANK", "2")

    assert Place(2, 1, 4) == find_place("tp", 4)
    assert Place(2, 4, 1) == find_place("pp", 4)
    assert (1, 0, True) == ((p := find_place("pptp", 4)).stage, p.shard, p.is_last)


@pytest.mark.parametrize(
    ("kind", "ranks", "message"),
    [
        ("tp", 2, "needs 2 processes that the server starts together"),
        ("pptp", 3, "expected torchrun.nproc-per-node: 4 or another even number"),
    ],
)
def test_ranks_that_cannot_be_arranged_are_refused(
    kind: str, ranks: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MARSERVE_RANK_STORE", "store")
    monkeypatch.setenv("WORLD_SIZE", "3")
    monkeypatch.setenv("RANK", "0")

    with pytest.raises(HandlerLoadError, match=message):
        find_place(kind, ranks)


def test_packing_knows_the_models_that_can_be_divided() -> None:
    assert set(PLANS) == set(DIVISIBLE)
    assert {kind for kind, plan in PLANS.items() if plan.layers} == set(PIPELINED)
