"""serve check, on what newcomers bring: what it says, where, and that the remedy helps."""

from __future__ import annotations

import json
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import tiny_models
from tests.e2e.running import BIN, Running, running

# What the widely copied example does, in its order: a base class, its settings under "handler",
# tokens by encode_plus, weights by mode, and the two ways of going faster that are gone.
EXAMPLE = """\
import ast
import logging

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from ts.torch_handler.base_handler import BaseHandler

logger = logging.getLogger(__name__)


class TextHandler(BaseHandler):
    def initialize(self, ctx):
        self.settings = ctx.model_yaml_config["handler"]
        directory = ctx.system_properties["model_dir"]
        self.model = AutoModelForSequenceClassification.from_pretrained(directory)
        if self.settings["BetterTransformer"]:
            from optimum.bettertransformer import BetterTransformer

            self.model = BetterTransformer.transform(self.model)
        if self.settings["model_parallel"]:
            self.model.parallelize()
        self.tokenizer = AutoTokenizer.from_pretrained(directory)
        self.initialized = True

    def preprocess(self, requests):
        # encode_plus() in a comment is no call
        texts = [row.get("data") or row.get("body") for row in requests]
        return [
            self.tokenizer.encode_plus(text, max_length=self.settings["max_length"])
            for text in texts
        ]
"""
SETTINGS = """\
minWorkers: 1
maxWorkers: 1
handler:
  model_name: bert-base-uncased
  mode: sequence_classification
  do_lower_case: true
  num_labels: 2
  save_mode: pretrained
  max_length: 48
  captum_explanation: true
  embedding_name: bert
  BetterTransformer: false
  model_parallel: false
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.build(
        "bert", "sequence_classification", tmp_path_factory.mktemp("saved") / "model"
    )


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    yield from running(tmp_path, models=None)


def pack_example(server: Running, saved: Path, name: str, more: str = "") -> Path:
    folder = server.root / name
    folder.mkdir()
    (folder / "Transformer_handler_generalized.py").write_text(EXAMPLE)
    (folder / "model-config.yaml").write_text(SETTINGS + more)
    extra = [str(path) for path in saved.iterdir() if path.name != "model.safetensors"]
    command = [str(BIN / "archive-model"), "--model-name", name, "--version", "1.0"]
    command += ["--handler", str(folder / "Transformer_handler_generalized.py")]
    command += ["--serialized-file", str(saved / "model.safetensors")]
    command += ["--extra-files", ",".join(extra), "--export-path", str(server.store)]
    command += ["--config-file", str(folder / "model-config.yaml")]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return server.store / f"{name}.mar"


def check(*arguments: object) -> tuple[int, list[dict[str, Any]]]:
    command = [str(BIN / "serve"), "check", "--json", *map(str, arguments)]
    done = subprocess.run(command, check=False, capture_output=True, timeout=60)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, json.loads(done.stdout)


def lines(findings: list[dict[str, Any]], level: str = "error") -> dict[int, str]:
    return {item["line"]: item["text"] for item in findings if item["level"] == level}


def test_the_removed_calls_of_the_example_are_named_with_both_remedies(
    server: Running, saved: Path
) -> None:
    status, findings = check(pack_example(server, saved, "example"))
    errors = [item for item in findings if item["level"] == "error"]
    at = {number + 1: line for number, line in enumerate(EXAMPLE.splitlines())}

    assert 1 == status
    assert ["optimum", "parallelize", "encode_plus"] == [
        next(word for word in ("optimum", "parallelize", "encode_plus") if word in item["text"])
        for item in errors
    ]
    for item, code in zip(
        errors, ("import Better", ".parallelize()", ".encode_plus("), strict=True
    ):
        assert "Transformer_handler_generalized.py" == item["file"]
        assert code in at[item["line"]]
        assert "handler=transformer_handler in the register call" in item["remedy"]
        assert "useHandler: transformer_handler" in item["remedy"]
        assert "transformers<5" in item["remedy"]


def test_the_example_is_served_by_our_handler(server: Running, saved: Path) -> None:
    pack_example(server, saved, "named")
    configured = pack_example(server, saved, "configured", "useHandler: transformer_handler\n")
    status, findings = check(configured)
    server.start()
    url = "/models?initial_workers=1&synchronous=true&url="
    refused = server.manage("POST", f"{url}named.mar&model_name=refused&batch_size=1")
    by_call = server.manage("POST", f"{url}named.mar&handler=transformer_handler")
    by_key = server.manage("POST", f"{url}configured.mar")
    answers = [server.predict(name, "a good film") for name in ("named", "configured")]
    explained = server.ask("POST", "/explanations/configured", "a good film")

    assert (0, []) == (status, findings)
    assert 200 == refused.status, "the handler loads; it is its first request that fails"
    failed = server.predict("refused", "a good film")
    assert 500 == failed.status
    assert "encode_plus" in failed.message
    assert [200, 200] == [by_call.status, by_key.status], by_call.text + by_key.text
    assert [200, 200] == [answer.status for answer in answers]
    assert answers[0].text == answers[1].text
    assert answers[0].text in ("Accepted", "Not Accepted")
    assert 200 == explained.status
    assert {"words", "importances", "delta"} <= explained.json.keys()


def test_transformers_4_in_an_environment_of_its_own_is_a_remedy(
    server: Running, saved: Path
) -> None:
    folder = server.root / "code"
    folder.mkdir()
    (folder / "h.py").write_text(EXAMPLE)
    (folder / "requirements.txt").write_text("transformers>=4.40,<5\noptimum\n")
    (folder / "model-config.yaml").write_text("useVenv: true\n" + SETTINGS)
    command = [str(BIN / "archive-model"), "--model-name", "old", "--version", "1.0"]
    command += ["--handler", "h.py", "--export-path", ".", "--config-file", "model-config.yaml"]
    command += ["--requirements-file", "requirements.txt"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=60)
    status, findings = check(folder / "old.mar")

    assert 0 == status
    assert ["optimum is imported and not installed here: it has to come from requirements.txt"] == [
        item["text"] for item in findings
    ]


def test_a_configuration_is_reviewed_line_by_line(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    text = """\
# a file for TorchServe
vmargs=-Xmx4g
job_queue_sise=7
job_queue_size=many
number_of_netty_threads=32
metrics_mode=log
default_workers_per_model=1
model_store=$$NO_SUCH_VARIABLE$$/store
"""
    file = tmp_path / "config.properties"
    file.write_text(text)
    status, findings = check(file)
    errors = lines(findings)

    assert 1 == status
    assert 'unknown key "job_queue_sise"' == errors[3]
    assert 'job_queue_size: expected an integer >= 1, got "many"' == errors[4]
    assert "NO_SUCH_VARIABLE" in errors[8]
    assert {2, 5} == lines(findings, "note").keys()
    assert "did you mean job_queue_size?" in [item["remedy"] for item in findings]


def test_a_sound_configuration_leads_to_its_store(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    (store / "broken.mar").write_text("no archive")
    file = tmp_path / "config.properties"
    url = "https://example.org/a.mar"
    file.write_text(f"model_store={store}\nload_models=broken.mar,absent.mar,{url}\n")
    status, findings = check(file)
    texts = [item["text"] for item in findings if item["level"] == "error"]

    assert 1 == status
    assert f"absent.mar is not in the model store {store}" in texts
    assert f"{url} is not among the allowed URLs" in texts
    assert ["broken.mar"] == [item["container"] for item in findings if item["container"]]


def test_a_store_with_sound_archives_has_no_errors(server: Running) -> None:
    server.pack("a", "echo")
    server.pack("b", "echo", config="batchSize: 4\n")
    status, findings = check(server.store)

    assert (0, []) == (status, findings)


def test_two_archives_of_one_name_and_version(server: Running) -> None:
    server.pack("a", "echo").rename(server.store / "other.mar")
    server.pack("a", "echo")
    status, findings = check(server.store)

    assert 1 == status
    assert ["a 1.0 is in a.mar too: only one of them is served"] == [f["text"] for f in findings]


def test_packages_that_are_absent_are_named(tmp_path: Path) -> None:
    code = """\
import json
import not_a_package_1
from not_a_package_2.deep import thing
from ts.context import Context
from ts.no_such_module import other


def handle(data, context):
    import not_a_package_3

    return data
"""
    (tmp_path / "h.py").write_text(code)
    status, findings = check(tmp_path / "h.py")

    assert 1 == status
    assert [2, 3, 5] == sorted(lines(findings))
    assert "ts.no_such_module" in lines(findings)[5]
    assert [9] == list(lines(findings, "note"))


def test_the_key_of_a_model_configuration_is_found_in_its_line(tmp_path: Path) -> None:
    file = tmp_path / "model-config.yaml"
    file.write_text("minWorkers: 1\nmaxWorkers: 2\n\nbatchSize: 0\n")
    status, findings = check(file)

    assert 1 == status
    assert {4: "batchSize: expected int >= 1, got 0"} == lines(findings)


def test_what_cannot_be_checked_is_wrong_usage(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("text")
    command = [str(BIN / "serve"), "check"]
    for argument in (tmp_path / "x.txt", tmp_path / "absent"):
        done = subprocess.run([*command, str(argument)], check=False, capture_output=True)

        assert 2 == done.returncode


def test_a_workflow_is_checked_like_an_archive(tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text("models:\n  a:\n    url: a.mar\ndag:\n  a: [last]\n")
    (tmp_path / "functions.py").write_text("def last(data, context):\n    return data\n")
    command = [str(BIN / "archive-workflow"), "--workflow-name", "flow", "--spec-file", "spec.yaml"]
    command += ["--handler", "functions.py"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=60)
    (tmp_path / "broken.war").write_text("no archive")

    status, findings = check(tmp_path / "flow.war")
    assert 0 == status, "the model may be in another store"
    assert [("spec.yaml", 3)] == [(item["file"], item["line"]) for item in findings]
    assert "there is no archive a.mar beside the workflow" in findings[0]["text"]
    (tmp_path / "a.mar").write_text("an archive")
    assert (0, []) == check(tmp_path / "flow.war")
    status, findings = check(tmp_path / "broken.war")
    assert 1 == status
    assert ["broken.war"] == [item["file"] for item in findings]


def test_what_is_wrong_in_a_workflow_has_its_line(tmp_path: Path) -> None:
    spec = "models:\n  a:\n    url: a.mar\n    batch-size: none\ndag:\n  a: [last]\n"
    code = "import absent_package\n\n\ndef last(data, context):\n    return data\n"
    manifest = {"workflow": {"workflowName": "f", "specFile": "spec.yaml", "handler": "f.py"}}
    (tmp_path / "a.mar").write_text("an archive")
    for name, text in (("wrong.war", spec), ("code.war", spec.replace("none", "2"))):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr("spec.yaml", text)
            archive.writestr("f.py", code)
            archive.writestr("WAR-INF/MANIFEST.json", json.dumps(manifest))

    status, findings = check(tmp_path / "wrong.war")
    assert 1 == status
    assert [("spec.yaml", 4)] == [(item["file"], item["line"]) for item in findings]
    assert "expected an integer >= 1, got 'none'" in findings[0]["text"]
    _, findings = check(tmp_path / "code.war")
    assert [("f.py", 1)] == [(item["file"], item["line"]) for item in findings]
    assert "absent_package" in findings[0]["text"]
