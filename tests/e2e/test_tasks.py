"""Images, sound and pages of explanations over HTTP: what is no text passes as it is."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Iterator

import pytest
from tests.e2e.running import BIN, Running, running
from tests.media_models import image, save, tone, wav
from tests.tiny_models import build

FORM = "application/x-www-form-urlencoded"
BOUNDARY = (
    b'--b\r\nContent-Disposition: form-data; name="image"; filename="f.png"\r\n'
    b"Content-Type: image/png\r\n\r\n%b\r\n"
    b'--b\r\nContent-Disposition: form-data; name="top_k"\r\n\r\n2\r\n--b--\r\n'
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    root = tmp_path_factory.mktemp("tasks")
    for server in running(root):
        saved = {
            "image_classification": save("vit", root / "vit"),
            "automatic_speech_recognition": save("wav2vec2", root / "wav2vec2"),
            "sequence_classification": build("bert", "sequence_classification", root / "bert"),
        }
        for task, directory in saved.items():
            command = [str(BIN / "archive-model"), "--from-pretrained", str(directory)]
            command += ["--task", task, "--model-name", task, "--export-path", str(server.store)]
            subprocess.run(command, check=True, capture_output=True)
        yield server.start()


def test_an_image_is_sent_as_it_is(server: Running) -> None:
    path = "/predictions/image_classification"
    encoded = base64.b64encode(image()).decode()
    requests: list[tuple[bytes, str]] = [
        (image(), "image/png"),
        (image(), "application/octet-stream"),
        (image(), FORM),  # what curl says of --data-binary unless it is told
        (json.dumps({"image": encoded}).encode(), "application/json"),
        (encoded.encode(), "text/plain"),
    ]

    answers = [server.ask("POST", path, body, {"Content-Type": kind}) for body, kind in requests]

    assert [200] * 5 == [answer.status for answer in answers], answers[0].text
    labels = [[each["label"] for each in answer.json] for answer in answers]
    assert [labels[0]] * 5 == labels
    assert len(labels[0]) == 5


def test_an_image_may_be_the_field_of_a_form(server: Running) -> None:
    kind = {"Content-Type": "multipart/form-data; boundary=b"}

    path = "/predictions/image_classification"
    answer = server.ask("POST", path, BOUNDARY % image(), kind)

    assert answer.status == 200
    assert len(answer.json) == 2


def test_sound_is_sent_as_it_is(server: Running) -> None:
    path = "/predictions/automatic_speech_recognition"

    answer = server.ask("POST", path, wav(tone(0.5)), {"Content-Type": "audio/wav"})
    refused = server.ask("POST", path, b"OggS", {"Content-Type": "audio/ogg"})

    assert answer.status == 200
    assert answer.json["text"]
    assert refused.status == 400
    assert "WAV" in refused.message


def test_what_has_no_explanation_says_so(server: Running) -> None:
    answer = server.ask("POST", "/explanations/image_classification", image())

    assert answer.status == 501
    assert "no explanations" in answer.message


def test_an_explanation_is_a_page_for_those_who_want_one(server: Running) -> None:
    path = "/explanations/sequence_classification"

    page = server.ask("POST", path, "a good film", {"Accept": "text/html"})
    plain = server.ask("POST", path, "a good film")

    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert ">film</span>" in page.text
    assert ["words", "importances", "delta"] == list(plain.json)
