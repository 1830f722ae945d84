"""The same V2 requests for Triton, MLServer and us: what differs is in the documentation."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.differential.open_cases import CASES, JSON, ROWS, Case, asked, tensor
from tests.differential.peers import FOLDERS, MLServer, Peer, Triton, why_not
from tests.e2e.running import Answer, Running, running

PAGE = Path(__file__).parents[2] / "docs" / "open-inference.md"
Pair = tuple[Peer, Running]


def beside(root: Path, peer: type[Triton] | type[MLServer]) -> Iterator[Pair]:
    """The other server and ours, each over a copy of the same folder."""
    if reason := why_not(peer):
        pytest.skip(reason)
    theirs = peer(root / "theirs")
    for ours in running(root / "ours"):
        for server in (theirs, ours):
            if peer is Triton:
                shutil.copytree(FOLDERS / "repository", server.store, dirs_exist_ok=True)
            else:
                shutil.copytree(FOLDERS / "runtimes", server.store, dirs_exist_ok=True)
        try:
            with ThreadPoolExecutor(1) as pool:
                started = pool.submit(theirs.start)
                ours.start()
                started.result()
            yield theirs, ours
        finally:
            if theirs.process is not None:
                theirs.stop()


@pytest.fixture(scope="module")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    yield from beside(tmp_path_factory.mktemp("triton"), Triton)


@pytest.fixture(scope="module")
def mlserver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    yield from beside(tmp_path_factory.mktemp("mlserver"), MLServer)


def named(case: Case) -> str:
    return case.name.replace(" ", "-")


@pytest.mark.parametrize("case", [c for c in CASES if c.triton is not None], ids=named)
def test_answers_of_triton(triton: Pair, case: Case) -> None:
    compare(triton, case, case.triton or {})


@pytest.mark.parametrize("case", [c for c in CASES if c.mlserver is not None], ids=named)
def test_answers_of_mlserver(mlserver: Pair, case: Case) -> None:
    compare(mlserver, case, case.mlserver or {})


def compare(pair: Pair, case: Case, differs: dict[str, str]) -> None:
    answers = [server.ask(case.method, case.path, case.body, case.headers) for server in pair]

    first, second = (aspects(answer) for answer in answers)
    differing = {key for key in first.keys() | second.keys() if first.get(key) != second.get(key)}
    if {answer.status >= 400 for answer in answers} == {True, False}:
        differing = {"status"}  # an error beside a result: nothing else can be compared

    assert differing == differs.keys(), "\n".join(
        f"{name} {answer.status} {answer.headers.get('content-type')} {answer.body[:700]!r}"
        for name, answer in zip((type(pair[0]).__name__, "ours"), answers, strict=True)
    )


@pytest.mark.parametrize("peer", ["triton", "ours"])
def test_requests_are_batched_and_fail_alone(triton: Pair, peer: str) -> None:
    server = triton[0] if peer == "triton" else triton[1]
    good, bad = (
        asked(*(tensor("FP32", [1, 2], [value, 1], name=name) for name in "AB"))
        for value in (1, 13)
    )
    with ThreadPoolExecutor(4) as pool:
        answers = list(
            pool.map(lambda b: server.ask("POST", ROWS, b, JSON), (good, bad, good, good))
        )

    assert [200, 500, 200, 200] == [answer.status for answer in answers]
    assert "thirteen is refused" in answers[1].json["error"]
    assert [2, 2] == answers[0].json["outputs"][0]["data"] == answers[3].json["outputs"][0]["data"]


def test_every_difference_is_documented() -> None:
    page = " ".join(PAGE.read_text().split())
    lists = [case.triton for case in CASES] + [case.mlserver for case in CASES]

    assert [] == [words for each in lists if each for words in each.values() if words not in page]


def aspects(answer: Answer) -> dict[str, Any]:
    """What of an answer is compared: of an error its form, of a tensor all that it says."""
    found: dict[str, Any] = {"status": answer.status}
    size = answer.headers.get("inference-header-content-length")
    body, tail = (answer.body, b"") if size is None else split(answer.body, int(size))
    try:
        plain = json.loads(body) if body else None
    except ValueError:
        plain = body.decode(errors="replace")
    if answer.status >= 400:
        is_text = isinstance(plain, dict) and isinstance(plain.get("error"), str)
        found["error"] = sorted(plain) if isinstance(plain, dict) else type(plain).__name__
        assert is_text or not isinstance(plain, dict) or "detail" in plain, answer.body
        return found
    if isinstance(plain, dict) and "outputs" in plain and "model_name" in plain:
        found["head"] = {k: plain.get(k) for k in ("model_name", "model_version")}
        found["id"] = plain.get("id")
        found["parameters"] = plain.get("parameters") or None
        found["outputs"] = [shown(each) for each in plain["outputs"]]
        found["tail"] = tail
    elif isinstance(plain, dict):
        found |= plain
    else:
        found["body"] = plain
    return found


def split(body: bytes, size: int) -> tuple[bytes, bytes]:
    return body[:size], body[size:]


def shown(output: dict[str, Any]) -> dict[str, Any]:
    data = output.get("data")
    return output if data is None else {**output, "data": flat(data)}


def flat(data: Any) -> list[Any]:
    if not isinstance(data, list):
        return [data]
    return [value for each in data for value in flat(each)]
