"""The same archives and requests for TorchServe and us: what differs is in the migration guide."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.differential.cases import CASES, Case
from tests.differential.torchserve import TorchServe, shown, why_not
from tests.e2e.running import Answer, Running, pack, running

GUIDE = Path(__file__).parents[2] / "docs" / "migration.md"
SERVED = ("base_style", "echo", "raising", "responding", "returning", "streaming", "wrong_length")
PROPERTIES = "max_request_size=2000000\ndefault_response_timeout=30\ndefault_workers_per_model=1\n"

# Their values say nothing about compatibility, or are checked elsewhere.
_TRANSPORT = {"connection", "content-length", "date", "server", "keep-alive", "x-request-id"}
_OWN_WORLD = {"startTime", "memoryUsage", "pid", "gpuUsage", "id", "status"}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TorchServe, Running]]:
    if reason := why_not():
        pytest.skip(reason)
    root = tmp_path_factory.mktemp("differential")
    for name in (*SERVED, "broken_load", "versioned"):
        pack(root / "store", name, name)
    (root / "second").mkdir()
    second = pack(root / "second", "versioned", "versioned", version="2.0")
    second.rename(root / "store" / "versioned2.mar")
    models = [f"{name}.mar" for name in SERVED]
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


def test_every_difference_is_in_the_migration_guide() -> None:
    guide = " ".join(GUIDE.read_text().split())

    assert [] == [
        f"{case.name}: {words}"
        for case in CASES
        for words in case.differs.values()
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
