"""Every example as its README says, typed into a shell, against a real server; on tiny models."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from serving import Workplace, bash_blocks, make_workplace

pytestmark = pytest.mark.timeout(600)  # a README starts and stops the server several times

TASKS = {
    "sequence_classification": "tiny:bert",
    "token_classification": "tiny:distilbert",
    "question_answering": "tiny:roberta",
    "text_generation": "tiny:gpt2",
}


@pytest.fixture
def workplace(
    request: pytest.FixtureRequest,
    examples: Path,
    tmp_path: Path,
    shell_environment: dict[str, str],
) -> Iterator[Workplace]:
    place = make_workplace(examples, request.param, tmp_path, shell_environment)
    yield place
    place.bash("serve --stop")


def readme_commands(place: Workplace, model: str) -> list[str]:
    """The blocks without the activation of the environment, on another model."""
    blocks = bash_blocks(place.folder / "README.md")
    assert blocks
    return [
        block.replace("source ../../.venv/bin/activate\n", "").replace(
            "models.py model-config.yaml", f"models.py model-config.yaml --model {model}"
        )
        for block in blocks
    ]


def answers(output: str) -> list[Any]:
    """The JSON documents in what a script prints."""
    decoder = json.JSONDecoder()
    found, position = [], 0
    while match := re.compile(r"^[\[{]", re.MULTILINE).search(output, position):
        value, position = decoder.raw_decode(output, match.start())
        found.append(value)
    return found


@pytest.mark.parametrize(
    ("workplace", "model"), TASKS.items(), indirect=["workplace"], ids=TASKS.keys()
)
def test_the_readme_of_a_task(workplace: Workplace, model: str) -> None:
    *steps, stop = readme_commands(workplace, model)
    for step in steps:
        workplace.bash(step)

    output = workplace.bash("./request.sh")

    assert stop.strip() == "serve --stop"
    documents = answers(output)
    explained = [found for found in documents if isinstance(found, dict) and "words" in found]
    assert len(explained) == 2
    for item in explained:
        for key in item:
            if key.startswith("importances"):
                assert len(item[key]) == len(item["words"])
    described = [found[0] for found in documents if isinstance(found, list)]
    assert [item["batchSize"] for item in described if "batchSize" in item] == [4]


@pytest.mark.parametrize("workplace", ["sequence_classification"], indirect=True)
def test_the_scripts_alone(workplace: Workplace) -> None:
    """`make_archive.sh`, then batching by config.properties, then `request.sh`."""
    workplace.environment["MODEL"] = "tiny:bert"
    assert "BERTSeqClassification.mar" in workplace.bash("./make_archive.sh")
    workplace.bash(
        "serve --start --model-store model_store --ts-config config.properties"
        " --disable-token-auth --enable-model-api"
    )
    before = json.loads(workplace.bash("curl http://127.0.0.1:8081/models/my_tc"))

    output = workplace.bash("./request.sh")

    assert (before[0]["batchSize"], before[0]["maxBatchDelay"]) == (4, 100)
    labels = re.findall(r"^(?:Not )?Accepted$", output, re.MULTILINE)
    assert len(labels) == 5
    assert len(set(labels[:3])) == 1, "one text in three forms"


@pytest.mark.parametrize("workplace", ["custom_handler"], indirect=True)
def test_the_readme_of_the_custom_handler(workplace: Workplace) -> None:
    (block,) = readme_commands(workplace, "")
    commands, _, stop = block.strip().rpartition("\n")
    assert stop == "serve --stop"
    workplace.bash(commands)

    output = workplace.bash("./request.sh")

    expected = [
        {"score": 3.0, "flagged": True},
        {"score": -0.9, "flagged": False},
        {"score": 3.0, "flagged": True},
    ]
    assert answers(output) == expected
    workplace.bash("serve --stop\nrm -r model_store\n./make_archive.sh\ntest -s model_store/*.mar")


@pytest.mark.parametrize("workplace", ["sentiment_classifier"], indirect=True)
def test_the_readme_of_the_sentiment_classifier(workplace: Workplace) -> None:
    """The real model; training again takes minutes, its parts are tested on their own."""
    pack, ask, train = readme_commands(workplace, "")
    assert "train.py" in train
    workplace.bash(pack)

    output = workplace.bash(ask)

    labels = re.findall(r"^(?:Positive|Negative)$", output, re.MULTILINE)
    assert labels[-2:] == ["Positive", "Negative"]
    explanation = next(found for found in answers(output) if "words" in found)
    _, strongest = max(zip(explanation["importances"], explanation["words"], strict=True))
    assert strongest == "beautifully"


def test_every_example_is_tested(examples: Path) -> None:
    folders = {file.parent.name for file in examples.glob("*/README.md")}

    assert folders == {*TASKS, "custom_handler", "sentiment_classifier"}
    linked = re.findall(r"\]\((\w+)/\)", (examples / "README.md").read_text())
    assert set(linked) == folders
