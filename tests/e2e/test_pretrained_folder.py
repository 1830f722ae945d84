"""A directory that save_pretrained wrote, served without packing anything."""

from __future__ import annotations

import json
from pathlib import Path

from tests import tiny_models
from tests.e2e.running import Running

TEXT = "a good film"


def test_it_is_served_as_it_is_and_as_its_archive_is(server: Running, tmp_path: Path) -> None:
    tiny_models.build("bert", "sequence_classification", server.store / "reviews")
    server.models = "reviews"
    server.properties = "default_workers_per_model=1"
    server.start()

    answer = server.predict("reviews", TEXT, timeout_s=100)

    assert answer.status == 200, answer.text
    assert answer.text in ("Accepted", "Not Accepted")
    described = server.describe("reviews")
    assert ("reviews", "1.0") == (described["modelName"], described["modelVersion"])


def test_what_is_missing_is_named(server: Running) -> None:
    folder = server.store / "reviews"
    folder.mkdir()
    (folder / "model-00001-of-00002.safetensors").touch()
    config = {"model_type": "bert", "architectures": ["BertForSequenceClassification"]}
    (folder / "config.json").write_text(json.dumps(config))
    server.models = None
    server.start()

    without_weights = server.manage("POST", "/models?url=reviews&initial_workers=1")
    (folder / "config.json").write_text(json.dumps({"architectures": ["BertForPreTraining"]}))
    without_task = server.manage("POST", "/models?url=reviews&initial_workers=1")

    assert 400 == without_weights.status
    assert "no weights: expected one of model.safetensors" in without_weights.message
    assert 400 == without_task.status
    assert "BertForPreTraining tells no task" in without_task.message
    assert str(server.root) not in without_weights.text + without_task.text
