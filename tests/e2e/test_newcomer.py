"""What hurts a newcomer to TorchServe, point by point: it does not hurt here, or is explained.

The points are those of the table "What used to hurt" in docs/migration.md, in its order.
"""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.running import BIN, SERVICES, Running, running

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
JSON = {"Content-Type": "application/json"}
PROPERTIES = "max_request_size=1000000\nnumber_of_gpu=0\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Without the model API, as a newcomer starts it; one of the models cannot be imported."""
    root = tmp_path_factory.mktemp("newcomer")
    for made in running(root, properties=PROPERTIES, arguments=("--disable-token-auth",)):
        for name in ("echo", "raising", "wrong_length", "broken_import"):
            made.pack(name, name)
        yield made.start()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """With tokens on, which is how it starts."""
    for made in running(tmp_path_factory.mktemp("guarded"), arguments=()):
        made.pack("echo", "echo")
        yield made.start()


def test_1_what_is_said_to_be_started_answers(tmp_path: Path) -> None:
    for made in running(tmp_path):
        made.pack("a", "base_style")  # imports torch, which takes its time
        made.start()  # returns at the line "Model server started."

        assert 200 == made.predict("a", "[1]", headers=JSON).status


def test_2_a_missing_key_is_explained(guarded: Running) -> None:
    refused = guarded.ask("GET", "/ping")
    told = "send 'Authorization: Bearer KEY' with the inference key of key_file.json"

    assert (400, "InvalidKeyException") == (refused.status, refused.json["type"])
    assert told in refused.message
    assert "--disable-token-auth" in refused.message
    assert [200, 200] == [guarded.ask("GET", f"/health/{p}").status for p in ("live", "ready")]


def test_3_a_first_curl_gets_its_answer(server: Running) -> None:
    assert "hello" == server.ask("POST", "/predictions/echo", "hello", FORM).text


def test_3_json_that_cannot_be_parsed_is_the_handlers_to_judge(server: Running) -> None:
    answer = server.ask("POST", "/predictions/echo", "{no json", JSON)

    assert (200, "{no json") == (answer.status, answer.text)


def test_4_one_worker_a_model(server: Running) -> None:
    assert [1, 1] == [len(server.worker_pids(name)) for name in ("echo", "raising")]


def test_5_a_handler_that_cannot_be_imported_says_so_everywhere(server: Running) -> None:
    cause = "ModuleNotFoundError: No module named 'a_package_that_nobody_has'"
    begun = time.monotonic()
    answer = server.predict("broken_import", "x")

    assert 503 == answer.status
    assert time.monotonic() - begun < 5, "it is not left to hang"
    assert cause in str(server.describe("broken_import"))
    server.wait_for(cause)
    assert 503 == server.ask("GET", "/health/ready").status
    checked = [str(BIN / "serve"), "check", str(server.store / "broken_import.mar")]
    done = subprocess.run(checked, check=False, capture_output=True, text=True, timeout=60)
    assert (1, True) == (done.returncode, "a_package_that_nobody_has" in done.stdout)


def test_6_what_a_handler_raises_is_told(server: Running) -> None:
    raised = server.predict("raising", "value")
    wrong = server.predict("wrong_length", "dict")

    assert (500, "Prediction failed: ValueError: the value is wrong") == (
        raised.status,
        raised.message,
    )
    assert "returned dict, expected a list of 1" in wrong.message


def test_7_a_body_that_is_too_large_is_told_the_limit(server: Running) -> None:
    answer = server.predict("echo", "x" * 1_000_001)

    assert 413 == answer.status
    assert "max_request_size" in answer.message
    assert "1000000" in answer.message


def test_7_registering_names_the_switch(server: Running) -> None:
    refused = server.manage("POST", "/models?url=echo.mar&model_name=other")

    assert 405 == refused.status
    assert "--enable-model-api" in refused.message
    assert "enable_model_api=true" in refused.message


def test_8_a_second_server_is_told_of_the_first(server: Running) -> None:
    command = [str(BIN / "serve"), "--start", "--model-store", str(server.store)]
    done = subprocess.run(
        command,
        cwd=server.root,
        env={"TMPDIR": str(server.root / "tmp"), "PATH": "/usr/bin:/bin"},
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert server.process is not None

    assert 1 == done.returncode
    assert f"already running (pid {server.process.pid})" in done.stdout + done.stderr
    assert "TMPDIR" in done.stdout + done.stderr


def test_9_the_copied_hugging_face_handler_and_both_ways_out() -> None:
    checked = [str(BIN / "serve"), "check", str(SERVICES / "encode_plus.py")]
    done = subprocess.run(checked, check=False, capture_output=True, text=True, timeout=60)

    assert 1 == done.returncode
    assert "encode_plus() is gone in transformers 5" in done.stdout
    assert "useHandler: transformer_handler" in done.stdout
    assert "transformers<5" in done.stdout
    assert "install_py_dep_per_model=true" in done.stdout


def test_10_a_request_is_one_line(server: Running) -> None:
    log = server.root / "logs" / "access_log.log"
    assert 200 == server.predict("echo/1.0", "x").status
    server.until(lambda: '"POST /predictions/echo/1.0 HTTP/1.1" 200 ' in log.read_text(), "no line")

    others = server.console + (server.root / "logs" / "ts_log.log").read_text()
    assert 1 == log.read_text().count("/predictions/echo/1.0")
    assert "/predictions/echo" not in others


def test_11_a_status_has_its_reason(server: Running) -> None:
    heads = []
    for path in ("/predictions/echo", "/predictions/absent"):
        with socket.create_connection(("127.0.0.1", server.ports["inference"])) as connection:
            connection.sendall(
                f"POST {path} HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n".encode()
            )
            heads.append(connection.makefile("rb").readline())

    assert [b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 404 Not Found\r\n"] == heads
