"""The inference service over gRPC: the real server, generated clients, the answers of HTTP."""

from __future__ import annotations

import json
import re
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from google.protobuf.empty_pb2 import Empty
from tests.e2e.grpc_clients import LIMIT_S, Clients, Held, failure, question, untyped
from tests.e2e.running import Running, running

from marserve.frontend.grpc.inference_pb2 import PredictionResponse, PredictionsRequest

Code = grpc.StatusCode
MODELS = ("echo", "raising", "responding", "slow", "streaming")


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clients]:
    properties = "default_workers_per_model=1\nmax_request_size=30000000\n"
    properties += "max_response_size=30000000"
    for server in running(tmp_path_factory.mktemp("grpc"), properties=properties):
        for name in MODELS:
            server.pack(name, name)
        register = "/models?url=echo.mar&model_name=idle&initial_workers=0"
        server.start().manage("POST", register)
        with Clients(server) as made:
            yield made


def http_message(asked: Clients, model: str, body: str) -> tuple[int, str]:
    answer = asked.server.predict(model, body)
    return answer.status, answer.message


def test_ping(asked: Clients) -> None:
    answer = asked.inference.Ping(Empty(), timeout=LIMIT_S)

    assert {"status": "Healthy"} == json.loads(answer.health)


@pytest.mark.parametrize("body", [b"", b"text", b"\x00\xff binary", b'{"a": 1}'])
def test_an_answer_has_the_bytes_that_http_answers(asked: Clients, body: bytes) -> None:
    plain = {"Content-Type": "application/octet-stream"}

    assert asked.server.predict("echo", body, headers=plain).body == asked.predict("echo", body)


def test_a_version_can_be_named(asked: Clients) -> None:
    assert b"x" == asked.predict("echo", "x", model_version="1.0")
    assert (
        Code.NOT_FOUND,
        "Model version: 2.0 does not exist for model: echo",
    ) == failure(lambda: asked.predict("echo", "x", model_version="2.0"))


def test_every_input_is_a_field_of_the_row(asked: Clients) -> None:
    inputs = {"first": b"1", "second": b"2", "third": b""}
    message = PredictionsRequest(model_name="echo", input=inputs)
    answer = asked.inference.Predictions(message, timeout=LIMIT_S)

    assert {"first": "1", "second": "2", "third": ""} == json.loads(answer.prediction)


def test_a_sequence_id_comes_back(asked: Clients) -> None:
    with_one = asked.inference.Predictions(question("echo", "x", sequence_id="s"), timeout=LIMIT_S)
    without = asked.inference.Predictions(question("echo", "x"), timeout=LIMIT_S)

    assert ("s", b"x") == (with_one.sequence_id, with_one.prediction)
    assert not without.HasField("sequence_id")
    assert not without.HasField("status")


def test_every_answer_has_a_request_id(asked: Clients) -> None:
    _, call = asked.inference.Predictions.with_call(question("echo", "x"), timeout=LIMIT_S)
    trailing = dict(call.trailing_metadata())

    assert 4 == uuid.UUID(trailing["x-request-id"]).version


def test_requests_of_many_clients_are_batched_and_kept_apart(asked: Clients) -> None:
    bodies = [f"body {number}".encode() for number in range(64)]
    with ThreadPoolExecutor(16) as pool:
        assert bodies == list(pool.map(lambda body: asked.predict("echo", body), bodies))


def test_twenty_megabytes_there_and_back(asked: Clients) -> None:
    body = bytes(range(256)) * (20 << 12)

    assert body == asked.predict("echo", body)
    assert [body] == asked.stream("echo", body)


def test_a_message_over_the_limit_is_refused(asked: Clients) -> None:
    code, text = failure(lambda: asked.predict("echo", bytes(30_000_001)))

    assert Code.RESOURCE_EXHAUSTED == code
    assert "30000000" in text


# -- errors ----------------------------------------------------------------------------------------


def test_a_question_without_a_model(asked: Clients) -> None:
    assert (Code.INVALID_ARGUMENT, "Parameter model_name is required.") == failure(
        lambda: asked.predict("")
    )


@pytest.mark.parametrize("name", ["nothing", "no/such", "../x", "x" * 300])
def test_an_unknown_model(asked: Clients, name: str) -> None:
    code, text = failure(lambda: asked.predict(name))

    assert (Code.NOT_FOUND, f"Model not found: {name[:100]}"[:117]) == (code, text[:117])


def test_a_model_without_workers(asked: Clients) -> None:
    code, text = failure(lambda: asked.predict("idle"))

    assert Code.UNAVAILABLE == code
    assert (503, text) == http_message(asked, "idle", "")


@pytest.mark.parametrize(
    ("wish", "status", "code"),
    [
        ("value", 500, Code.INTERNAL),
        ("prediction", 599, Code.INTERNAL),
        ("memory", 507, Code.INTERNAL),
    ],
)
def test_a_handler_that_fails(asked: Clients, wish: str, status: int, code: Code) -> None:
    found, text = failure(lambda: asked.predict("raising", wish))

    assert (status, text) == http_message(asked, "raising", wish)
    assert code == found


def test_a_status_that_a_handler_sets_does_not_hide_its_answer(asked: Clients) -> None:
    assert b"responded" == asked.predict("responding", "")


def test_an_unknown_method(asked: Clients) -> None:
    call = untyped(asked.channels["inference"], "/org.pytorch.serve.Nothing/Do")

    assert Code.UNIMPLEMENTED == failure(lambda: call(b"", timeout=LIMIT_S))[0]


def test_bytes_that_are_no_message(asked: Clients) -> None:
    path = "/org.pytorch.serve.grpc.inference.InferenceAPIsService/Predictions"
    call = untyped(asked.channels["inference"], path)
    code, text = failure(lambda: call(b"\xff\xff\xff", timeout=LIMIT_S))

    assert (Code.INVALID_ARGUMENT, "The 3 bytes of the request are no such message.") == (
        code,
        text,
    )
    assert b"still here" == asked.predict("echo", "still here")


# -- streams ---------------------------------------------------------------------------------------


def test_a_stream_has_a_message_a_piece(asked: Clients) -> None:
    assert [b"hello 0 ", b"hello 1 ", b"hello 2 ", b"done"] == asked.stream("streaming", "3")


def test_a_handler_that_does_not_stream_is_a_stream_of_one(asked: Clients) -> None:
    assert [b"x"] == asked.stream("echo", "x")


def test_one_answer_of_a_handler_that_streams_is_joined(asked: Clients) -> None:
    assert b"hello 0 hello 1 done" == asked.predict("streaming", "2")


def test_a_stream_that_fails(asked: Clients) -> None:
    code, text = failure(lambda: asked.stream("raising", "value"))

    assert Code.INTERNAL == code
    assert (500, text) == http_message(asked, "raising", "value")


def test_a_conversation_is_answered_in_its_order(asked: Clients) -> None:
    answers = asked.converse(*(question("echo", str(number)) for number in range(200)))

    assert [str(number).encode() for number in range(200)] == [a.prediction for a in answers]


def test_a_conversation_of_large_bodies_goes_on_while_answers_wait_for_room(asked: Clients) -> None:
    """Questions are read and answers written by tasks of their own, each of which may wait."""
    bodies = [bytes([number]) * 300_000 for number in range(100)]
    answers = asked.converse(*(question("echo", body) for body in bodies))

    assert bodies == [answer.prediction for answer in answers]


def test_what_fails_in_a_conversation_is_said_in_its_answer(asked: Clients) -> None:
    good, bad, unknown, last = asked.converse(
        question("raising", "ok", sequence_id="a"),
        question("raising", "value", sequence_id="a"),
        question("nothing", sequence_id="a"),
        question("echo", "last", sequence_id="a"),
    )

    assert b"fine" == good.prediction
    assert not good.HasField("status")
    assert (13, "a") == (bad.status.code, bad.sequence_id)
    assert "the value is wrong" in bad.status.message
    assert (5, "Model not found: nothing") == (unknown.status.code, unknown.status.message)
    assert b"last" == last.prediction


def test_sequences_do_not_wait_for_each_other(asked: Clients) -> None:
    held = Held()
    answers = asked.inference.StreamPredictions2(held, timeout=LIMIT_S)
    held.send(question("slow", "2", sequence_id="slow"), question("echo", "x", sequence_id="quick"))
    first, second = next(answers), next(answers)
    held.send(None)

    assert ("quick", b"x") == (first.sequence_id, first.prediction)
    assert ("slow", b"slept 2") == (second.sequence_id, second.prediction)
    assert [] == list(answers)


def test_bytes_that_are_no_message_end_a_conversation(asked: Clients) -> None:
    path = "/org.pytorch.serve.grpc.inference.InferenceAPIsService/StreamPredictions2"
    call: Any = asked.channels["inference"].stream_stream(path)
    known = question("echo", "known").SerializeToString()
    answers = call(iter([known, b"\xff\xff\xff"]), timeout=LIMIT_S)
    first = PredictionResponse.FromString(next(answers))
    code, text = failure(lambda: next(answers))

    assert b"known" == first.prediction
    assert (Code.INVALID_ARGUMENT, "The 3 bytes of the request are no such message.") == (
        code,
        text,
    )


# -- time and cancellation -------------------------------------------------------------------------


def test_the_clients_deadline_is_the_requests(asked: Clients) -> None:
    running_one = asked.inference.Predictions.future(question("slow", "1.5"), timeout=LIMIT_S)
    code, _ = failure(lambda: asked.predict("slow", "0", timeout=0.3))

    assert Code.DEADLINE_EXCEEDED == code
    assert b"slept 1.5" == running_one.result().prediction


def begins(server: Running) -> int:
    return server.console.count("batch of 1 begins")


def test_a_cancelled_call_frees_its_place(asked: Clients) -> None:
    server, before = asked.server, begins(asked.server)
    first = asked.inference.Predictions.future(question("slow", "1"), timeout=LIMIT_S)
    server.until(lambda: begins(server) == before + 1, "the first one does not run")
    waiting = [
        asked.inference.Predictions.future(question("slow", "30"), timeout=LIMIT_S)
        for _ in range(5)
    ]
    for call in waiting:
        call.cancel()

    assert b"slept 0" == asked.predict("slow", "0")
    assert b"slept 1" == first.result().prediction
    assert all(call.cancelled() for call in waiting)


def test_a_stream_that_is_cancelled_ends_the_handlers_work(asked: Clients) -> None:
    call: Any = asked.inference.StreamPredictions(question("streaming", "1000000"))
    assert b"hello 0 " == next(call).prediction
    call.cancel()

    assert [b"hello 0 ", b"done"] == asked.stream("streaming", "1")


def test_calls_are_in_the_access_log(asked: Clients) -> None:
    failure(lambda: asked.predict("nothing"))
    log = asked.server.root / "logs" / "access_log.log"
    path = "org.pytorch.serve.grpc.inference.InferenceAPIsService/Predictions"
    line = re.compile(rf'/127\.0\.0\.1:\d+ "gRPC {path} HTTP/2\.0" 5 ')

    asked.server.until(lambda: line.search(log.read_text()), "no such line")


def test_threads_of_one_client_share_a_connection(asked: Clients) -> None:
    answers: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: answers.append(asked.predict("echo", "x" * 100_000)))
        for _ in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [b"x" * 100_000] * 20 == answers
