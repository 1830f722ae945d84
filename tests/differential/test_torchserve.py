"""The same archives and requests for TorchServe and us: what differs is in the migration guide."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.differential.cases import CASES as PLAIN
from tests.differential.cases import Case
from tests.differential.exposition import families, labels, pieces, values
from tests.differential.features import FEATURES, MODELS, OVERLAPPING
from tests.differential.grpc_questions import QUESTIONS, Question, outcome
from tests.differential.torchserve import TorchServe, shown, why_not
from tests.e2e.grpc_clients import Clients
from tests.e2e.running import Answer, Running, pack, running
from tests.e2e.test_workflows import pack as pack_workflow

GUIDE = Path(__file__).parents[2] / "docs" / "migration.md"
SERVED = ("echo", "raising", "responding", "returning", "streaming", "wrong_length")
CASES = [*FEATURES, *PLAIN]
PROPERTIES = "max_request_size=2000000\ndefault_response_timeout=30\ndefault_workers_per_model=1\n"
PROPERTIES += "metrics_mode=prometheus\nmodel_metrics_auto_detect=true\n"

# Their values say nothing about compatibility, or are checked elsewhere.
_TRANSPORT = {"connection", "content-length", "date", "server", "keep-alive", "x-request-id"}
_OWN_WORLD = {"startTime", "memoryUsage", "pid", "gpuUsage", "id", "status"}


pytestmark = pytest.mark.timeout(900)  # a real TorchServe takes its time on a busy machine


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TorchServe, Running]]:
    if reason := why_not():
        pytest.skip(reason)
    root = tmp_path_factory.mktemp("differential")
    for name in (*SERVED, "broken_load", "versioned"):
        pack(root / "store", name, name)
    for name, (service, config) in {**MODELS, "overlapping": OVERLAPPING}.items():
        pack(root / "store", name, service, config)
    (root / "second").mkdir()
    second = pack(root / "second", "versioned", "versioned", version="2.0")
    second.rename(root / "store" / "versioned2.mar")
    pack_workflow(root / "store", "chain", "dag: {first: [upper]}")
    models = [f"{name}.mar" for name in (*SERVED, *MODELS)]
    arguments = ("--disable-token-auth", "--enable-model-api", "--models", *models)
    theirs = TorchServe(root / "theirs", PROPERTIES, arguments, None)
    theirs.store = root / "store"
    for ours in running(root / "ours", properties=PROPERTIES, arguments=arguments, models=None):
        ours.store = root / "store"
        try:
            theirs.start()
            ours.start()
            yield theirs, ours
        finally:
            theirs.stop()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "-"))
def test_answers(servers: tuple[TorchServe, Running], case: Case) -> None:
    theirs, ours = (
        server.ask(case.method, case.path, case.body, case.headers, kind=case.kind)
        for server in servers
    )

    first, second = aspects(theirs), aspects(ours)
    if "body" in first and "body" in second:
        second["body"] = like(first["body"], second["body"])
    differing = {key for key in first.keys() | second.keys() if first.get(key) != second.get(key)}

    assert differing == case.differs.keys(), f"\ntheirs {shown(theirs)}\nours   {shown(ours)}"


@pytest.fixture(scope="module")
def clients(servers: tuple[TorchServe, Running]) -> Iterator[tuple[Clients, Clients]]:
    theirs, ours = servers
    with Clients(theirs) as first, Clients(ours) as second:
        yield first, second


@pytest.mark.parametrize("asked", QUESTIONS, ids=lambda asked: asked.name.replace(" ", "-"))
def test_grpc_answers(clients: tuple[Clients, Clients], asked: Question) -> None:
    theirs, ours = (outcome(asked, each) for each in clients)
    for found in (theirs, ours):
        found["answer"] = stable(found.get("answer"))

    ours = {key: like(theirs.get(key), value) for key, value in ours.items()}
    differing = {key for key in theirs.keys() | ours.keys() if theirs.get(key) != ours.get(key)}
    assert differing == asked.differs.keys(), f"\ntheirs {theirs}\nours   {ours}"


@pytest.mark.parametrize(
    ("model", "body", "kind", "expected"),
    [
        ("streamed", "one two", "text/plain", [b"one", b"two", b"."]),
        ("steps", '{"from": 3, "count": 3}', "application/json", [b"3 ", b"4 ", b"5 "]),
    ],
)
def test_a_piece_is_a_chunk(
    servers: tuple[TorchServe, Running], model: str, body: str, kind: str, expected: list[bytes]
) -> None:
    path = f"/predictions/{model}"
    theirs, ours = (pieces(s.ports["inference"], path, body, kind) for s in servers)

    assert expected == [p for p in theirs if p]
    assert expected == ours


def register_until_it_loads(server: Running, name: str, tries: int = 3) -> bool:
    """Tells whether a model is registered, with a worker that answers."""
    url = f"/models?url={name}.mar&initial_workers=1&synchronous=true"
    for _ in range(tries):
        if server.manage("POST", url).status == 200:
            return True
        server.manage("DELETE", f"/models/{name}")
    return False


def test_an_async_worker(servers: tuple[TorchServe, Running]) -> None:
    """Theirs is asked one by one: what is in flight together there is now and then not answered."""
    theirs, ours = servers
    asked = ["go", "wait", "refuse", "stream"]
    assert register_until_it_loads(ours, "overlapping", tries=1)
    together = ours.together("overlapping", ["wait", *asked])
    ones = [ours.predict("overlapping", each) for each in asked]
    answers = [(each.status, without_ids(each.text)) for each in ones]

    assert [200, 200, 200, 409, 200] == [each.status for each in together]
    assert [each.text for each in together[1:]] == [each.text for each in ones]
    assert ["go is done", "wait is done"] == [text for _, text in answers[:2]]
    assert "first stream is done" == answers[3][1]
    try:
        assert register_until_it_loads(theirs, "overlapping")
        found = [theirs.predict("overlapping", each) for each in asked]
    except (AssertionError, OSError) as error:
        pytest.skip(f"TorchServe's async worker does not work, as happens there: {error!r:.100}")
    assert answers == [(each.status, without_ids(each.text)) for each in found]


def test_what_a_handler_knows_of_its_model(servers: tuple[TorchServe, Running]) -> None:
    theirs, ours = (server.predict("configured", "x").json for server in servers)
    for known in (theirs, ours):
        folder = known.pop("folder")
        assert folder == known["properties"].pop("model_dir")
        for key in ("Host", "Accept-Encoding", "Content-Length", "body"):
            known["headers"].pop(key, None)

    assert theirs["config"] == ours["config"]
    assert theirs["properties"] == ours["properties"]
    assert theirs["headers"] == ours["headers"]
    assert theirs["manifest"] == like(theirs["manifest"], ours["manifest"])


def test_metrics_have_the_same_names_types_and_labels(
    servers: tuple[TorchServe, Running],
) -> None:
    for server in servers:
        server.predict("own_metrics", "x")
        server.predict("base_style", "[1]", headers={"Content-Type": "application/json"})
    theirs, ours = (s.ask("GET", "/metrics", kind="metrics").text for s in servers)
    error = {"Mistakes"}  # has its model's name as well: the guide says so

    assert {} == {
        name: (each, families(ours).get(name))
        for name, each in families(theirs).items()
        if families(ours).get(name) != each
    }
    assert {} == {
        name: (each, labels(ours).get(name))
        for name, each in labels(theirs).items()
        if labels(ours).get(name) != each and name not in error
    }


def test_a_handlers_own_metrics_have_the_same_values(servers: tuple[TorchServe, Running]) -> None:
    texts = [s.ask("GET", "/metrics", kind="metrics").text for s in servers]
    theirs, ours = (values(text, "own_metrics") for text in texts)
    times = ("PredictionTime", "ts_")

    assert {} == {
        name: (value, ours.get(name))
        for name, value in theirs.items()
        if ours.get(name) != value and not name.startswith(times)
    }
    requests = [name for name in theirs if name.startswith("ts_inference_requests_total")]
    assert [ours[name] for name in requests] == [theirs[name] for name in requests]


def test_every_difference_is_in_the_migration_guide() -> None:
    guide = " ".join(GUIDE.read_text().split())

    named = [(case.name, case.differs) for case in CASES]
    named += [(asked.name, asked.differs) for asked in QUESTIONS]
    assert [] == [
        f"{name}: {words}"
        for name, differs in named
        for words in differs.values()
        if words not in guide
    ]


def aspects(answer: Answer) -> dict[str, Any]:
    """What of an answer is compared."""
    found: dict[str, Any] = {"status": answer.status, "headers": headers(answer)}
    plain = as_json(answer)
    if isinstance(plain, dict) and plain.keys() == {"code", "type", "message"}:
        found |= {"type": plain["type"], "message": without_ids(plain["message"])}
        assert plain["code"] == answer.status
    elif "openapi" in (plain if isinstance(plain, dict) else {}):
        found["body"] = plain["openapi"].split(".")[0]
    elif answer.headers.get("content-type", "").startswith("text/plain; version"):
        found["body"] = "metrics"
    else:
        found["body"] = plain if plain is not None else answer.body
    return found


def like(model: Any, value: Any) -> Any:
    """A value without the keys that only we have: more may be told, in objects."""
    if isinstance(model, dict) and isinstance(value, dict):
        return {k: like(model[k], v) for k, v in value.items() if k in model}
    if isinstance(model, list) and isinstance(value, list) and len(model) == len(value):
        return [like(m, v) for m, v in zip(model, value, strict=True)]
    return value


def headers(answer: Answer) -> dict[str, str]:
    kept = {k: v.lower() for k, v in answer.headers.items() if k not in _TRANSPORT}
    if "content-type" in kept:
        kept["content-type"] = kept["content-type"].replace("; ", ";")
    return kept


def as_json(answer: Answer) -> Any:
    """The body without what differs from run to run; None if it is no JSON."""
    try:
        return stable(json.loads(answer.body))
    except ValueError:
        return None


def stable(value: Any) -> Any:
    if isinstance(value, list):
        return [stable(each) for each in value]
    if isinstance(value, dict):
        return {k: stable(v) for k, v in value.items() if k not in _OWN_WORLD}
    return value


def without_ids(text: str) -> str:
    return re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "ID", text)
