"""What handlers import besides their base: timers, scores, introspection, streamers, memory."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.tiny_models import build
from transformers import AutoTokenizer

from marserve.handlers import envelopes
from marserve.handlers.base import BaseHandler
from marserve.handlers.batch_streamer import TextIteratorStreamerBatch
from marserve.handlers.context import Context
from marserve.handlers.introspection import (
    check_valid_pt2_backend,
    import_class,
    list_classes_from_module,
)
from marserve.handlers.metrics import HandlerMetrics
from marserve.handlers.process_memory import check_process_mem_usage, get_cpu_usage
from marserve.handlers.scores import map_class_to_label
from marserve.handlers.timing import timed


class Timed:
    def __init__(self, config: dict[str, Any]) -> None:
        self.context = Context(
            "m", "/nowhere", {}, metrics=HandlerMetrics("m"), model_yaml_config=config
        )

    @timed
    def preprocess(self, data: int) -> int:
        return data + 1


@pytest.mark.parametrize(
    ("config", "expected"),
    [({"handler": {"profile": True}}, ["ts_handler_preprocess"]), ({"handler": {}}, []), ({}, [])],
)
def test_timed_reports_where_it_is_asked_to(config: dict[str, Any], expected: list[str]) -> None:
    handler = Timed(config)

    assert 2 == handler.preprocess(1)
    assert expected == [values[0] for values in handler.context.metrics.drain()]
    assert "preprocess" == Timed.preprocess.__name__


@pytest.mark.parametrize(
    ("mapping", "classes", "expected"),
    [
        (None, None, [{"0": 0.9, "1": 0.1}]),
        (None, [[7, 3]], [{"7": 0.9, "3": 0.1}]),
        ({"0": "cat", "1": "dog"}, [[1, 0]], [{"dog": 0.9, "cat": 0.1}]),
        ({"0": ["n01", "cat"]}, None, [{"cat": 0.9, "1": 0.1}]),
        ({"object_type_names": ["a", "b"]}, [[1, 5]], [{"b": 0.9, "5": 0.1}]),
    ],
)
def test_scores_get_their_labels(mapping: Any, classes: Any, expected: Any) -> None:
    assert expected == map_class_to_label([[0.9, 0.1]], mapping, classes)


def test_classes_of_a_module_are_its_own() -> None:
    found = list_classes_from_module(envelopes)

    assert envelopes.JSONEnvelope in found
    assert "RequestError" not in {each.__name__ for each in found}
    assert [envelopes.JSONEnvelope] == list_classes_from_module(envelopes, envelopes.JSONEnvelope)


def test_a_class_is_imported_by_its_name() -> None:
    assert BaseHandler is import_class("marserve.handlers.base.BaseHandler")
    assert BaseHandler is import_class("base.BaseHandler", "marserve.handlers")
    with pytest.raises(ImportError, match="has no class Absent"):
        import_class("Absent", "marserve.handlers.base")
    with pytest.raises(ImportError, match="names no module"):
        import_class("Absent")


def test_backends_are_known_by_name() -> None:
    assert check_valid_pt2_backend("inductor")
    assert not check_valid_pt2_backend("inducter")


def test_a_batch_of_sequences_is_streamed(tmp_path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(build("gpt2", "text_generation", tmp_path))
    texts = ["the quick brown fox", "a dog"]
    ids = [tokenizer(text)["input_ids"] for text in texts]
    streamer = TextIteratorStreamerBatch(tokenizer, 2, timeout=30, skip_special_tokens=True)
    pad = tokenizer.eos_token_id
    for _ in range(2):  # it serves one batch after the other
        for step in range(max(map(len, ids))):
            tokens = [row[step] if step < len(row) else pad for row in ids]
            streamer.put(torch.tensor(tokens))
        streamer.end()

        steps = list(streamer)

        assert texts == ["".join(column).strip() for column in zip(*steps, strict=True)]
    with pytest.raises(ValueError, match="expected 2 sequences, got 3"):
        streamer.put(torch.zeros(3, dtype=torch.int64))


def test_memory_of_a_process_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    check_process_mem_usage([f"{os.getpid()},\n", "\n"])

    pid, _, used = capsys.readouterr().out.strip().partition(":")
    assert str(os.getpid()) == pid
    assert int(used) > 1 << 20
    assert 0 == get_cpu_usage("no process") == get_cpu_usage(sys.maxsize >> 32)
