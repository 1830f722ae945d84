from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from marserve.archiver.errors import ArchiveError
from marserve.archiver.package import PackageSpec, package
from marserve.archiver.pretrained import pretrained_spec
from marserve.archiver.unpack import Archive, unpack

SMALL = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
BERT: dict[str, Any] = {**SMALL, "intermediate_size": 8, "vocab_size": 20}


@pytest.fixture
def save(tmp_path: Path) -> Callable[..., Path]:
    """Saves a small seeded model as its author would."""

    def save(kind: str, config: dict[str, Any], *, shards: bool = False) -> Path:
        directory = tmp_path / "saved"
        torch.manual_seed(0)
        model_class = getattr(transformers, kind)
        model = model_class(model_class.config_class(**config))
        model.save_pretrained(directory, max_shard_size="2KB" if shards else "1GB")
        vocabulary = {"[UNK]": 0, "[PAD]": 1, "[CLS]": 2, "[SEP]": 3, "good": 4, "bad": 5}
        plain = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
        plain.pre_tokenizer = Whitespace()
        tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=plain, do_lower_case=True)
        tokenizer.save_pretrained(directory)
        return directory

    return save


def packed(directory: Path, task: str, tmp_path: Path, **changes: Any) -> Archive:
    spec = PackageSpec(model_name="m", handler="", export_path=tmp_path, **changes)
    with pretrained_spec(spec, directory, task) as whole:
        path = package(whole)
    return unpack(path, tmp_path / "target")


def test_a_classifier_is_packed_with_its_labels(save: Callable[..., Path], tmp_path: Path) -> None:
    labels = {"id2label": {0: "good", 1: "bad", 2: "new"}, "max_position_embeddings": 64}
    directory = save("BertForSequenceClassification", {**BERT, **labels})
    archive = packed(directory, "sequence_classification", tmp_path)

    assert archive.manifest.model.handler == "transformer_handler"
    assert archive.manifest.model.serialized_file == "model.safetensors"
    assert archive.manifest.model.config_file == "model-config.yaml"
    assert archive.config.raw == {
        "handler": {
            "model_name": "bert",
            "mode": "sequence_classification",
            "do_lower_case": True,
            "num_labels": 3,
            "save_mode": "pretrained",
            "max_length": 64,
            "captum_explanation": True,
            "embedding_name": "bert",
            "BetterTransformer": False,
            "model_parallel": False,
        }
    }
    labels_file = archive.directory / "index_to_name.json"
    assert json.loads(labels_file.read_text()) == {"0": "good", "1": "bad", "2": "new"}
    assert {"config.json", "tokenizer.json", "tokenizer_config.json"} < set(
        archive.manifest.digests
    )


def test_the_same_directory_gives_the_same_bytes(save: Callable[..., Path], tmp_path: Path) -> None:
    directory = save("BertForQuestionAnswering", BERT)
    first = packed(directory, "question_answering", tmp_path / "a")
    again = packed(directory, "question_answering", tmp_path / "b")

    assert (tmp_path / "a/m.mar").read_bytes() == (tmp_path / "b/m.mar").read_bytes()
    assert first.digest == again.digest
    assert first.config.handler.num_labels is None


def test_sharded_weights_are_packed_whole(save: Callable[..., Path], tmp_path: Path) -> None:
    labels = {"id2label": {0: "O", 1: "B-PER"}, "max_position_embeddings": 1024}
    directory = save("BertForTokenClassification", {**BERT, **labels}, shards=True)
    shards = {path.name for path in directory.glob("model-*.safetensors")}
    archive = packed(directory, "token_classification", tmp_path)

    assert len(shards) > 1
    assert shards < set(archive.manifest.digests)
    assert archive.manifest.model.serialized_file == "model.safetensors.index.json"
    assert archive.config.handler.max_length == 512
    labels_file = archive.directory / "index_to_name.json"
    assert json.loads(labels_file.read_text()) == {"label_list": "[O, B-PER]"}
    model = transformers.AutoModelForTokenClassification.from_pretrained(archive.directory)
    assert model.config.num_labels == 2


def test_a_generator_keeps_its_generation_config(save: Callable[..., Path], tmp_path: Path) -> None:
    config = {"n_embd": 8, "n_layer": 1, "n_head": 2, "vocab_size": 20, "n_positions": 32}
    archive = packed(save("GPT2LMHeadModel", config), "text_generation", tmp_path)

    assert archive.config.handler.max_length == 32
    assert archive.config.handler.embedding_name == "transformer"
    assert "generation_config.json" in archive.manifest.digests


def test_own_files_win_over_generated_ones(save: Callable[..., Path], tmp_path: Path) -> None:
    directory = save("RobertaForSequenceClassification", {**BERT, "max_position_embeddings": 34})
    (directory / "index_to_name.json").write_text('{"0": "mine", "1": "yours"}')
    own = tmp_path / "own.yaml"
    own.write_text("batchSize: 7\nhandler: {mode: sequence_classification}")
    archive = packed(directory, "sequence_classification", tmp_path, config_file=own)

    assert archive.config.batch_size == 7
    assert "mine" in (archive.directory / "index_to_name.json").read_text()
    generated = packed(directory, "sequence_classification", tmp_path / "b")
    assert generated.config.handler.max_length == 32, "two positions are never used"


def test_given_labels_and_odd_names_are_kept(save: Callable[..., Path], tmp_path: Path) -> None:
    labels = {"id2label": {0: "O", 1: "a, b"}}
    directory = save("BertForTokenClassification", {**BERT, **labels})
    archive = packed(directory, "token_classification", tmp_path)
    name = "index_to_name.json"

    assert json.loads((archive.directory / name).read_text()) == {"0": "O", "1": "a, b"}
    (tmp_path / name).write_text('{"label_list": "[x, y]"}')
    given = packed(
        directory, "token_classification", tmp_path / "b", extra_files=(tmp_path / name,)
    )
    assert "[x, y]" in (given.directory / name).read_text()


def test_what_is_missing_or_wrong_is_named(save: Callable[..., Path], tmp_path: Path) -> None:
    directory = save("BertForSequenceClassification", BERT)
    with pytest.raises(ArchiveError, match="no head for question_answering; expected --task seq"):
        packed(directory, "question_answering", tmp_path)
    with pytest.raises(ArchiveError, match="--task: expected one of"):
        packed(directory, "dancing", tmp_path)
    (directory / "tokenizer.json").unlink()
    with pytest.raises(ArchiveError, match="expected the tokenizer's files"):
        packed(directory, "sequence_classification", tmp_path)
    (directory / "model.safetensors").unlink()
    with pytest.raises(ArchiveError, match=r"has no weights: expected one of model\.safetensors"):
        packed(directory, "sequence_classification", tmp_path)
    (directory / "config.json").unlink()
    with pytest.raises(ArchiveError, match=r"file not found: .*config\.json"):
        packed(directory, "sequence_classification", tmp_path)
    with pytest.raises(ArchiveError, match="directory not found"):
        packed(tmp_path / "gone", "sequence_classification", tmp_path)
    assert not list(tmp_path.glob("*.mar"))


def test_the_command_packs_a_directory(
    save: Callable[..., Path], tmp_path: Path, archive_model: Callable[..., Any]
) -> None:
    directory = save(
        "DistilBertForSequenceClassification", {"dim": 8, "hidden_dim": 8, "n_heads": 2}
    )
    args = ["--from-pretrained", directory, "--model-name", "d", "--export-path", tmp_path]
    result = archive_model(*args, "--task", "sequence_classification")
    shown = archive_model("inspect", tmp_path / "d.mar", "--json")

    assert result.returncode == 0, result.stderr
    assert json.loads(shown.stdout)["config"]["handler"]["embedding_name"] == "distilbert"
    assert archive_model("verify", tmp_path / "d.mar").returncode == 0
    assert archive_model(*args, "-f").returncode == 2
    both = archive_model(*args, "-f", "--task", "sequence_classification", "--serialized-file", "x")
    assert both.returncode == 2
    assert "omit --serialized-file" in both.stderr
