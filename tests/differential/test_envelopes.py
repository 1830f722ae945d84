"""service_envelope, and the metrics modes that write lines: TorchServe and us, side by side.

A server a setting, of one light handler each; all of TorchServe's start together.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.differential.exposition import families
from tests.differential.features import HANDLERS
from tests.differential.test_torchserve import aspects, without_ids
from tests.differential.torchserve import TorchServe, shown, why_not
from tests.e2e.running import Running, pack

ARGUMENTS = ("--disable-token-auth", "--enable-model-api", "--models")
SETTINGS = {
    "json": "service_envelope=json\nmetrics_mode=legacy\n",
    "kserve": "service_envelope=kserve\nmetrics_mode=log\nmodel_metrics_auto_detect=true\n",
    "kservev2": "service_envelope=kservev2\n",
    "body": "service_envelope=body\n",
}
KIND = {"Content-Type": "application/json"}
Pairs = dict[str, tuple[TorchServe, Running]]


pytestmark = pytest.mark.timeout(900)  # a real TorchServe takes its time on a busy machine


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pairs]:
    if reason := why_not():
        pytest.skip(reason)
    root = tmp_path_factory.mktemp("envelopes")
    store = root / "store"
    pack(store, "enveloped", f"{HANDLERS}enveloped")
    pack(store, "own_metrics", f"{HANDLERS}own_metrics")
    made: Pairs = {}
    for name, settings in SETTINGS.items():
        more = ("own_metrics.mar",) if name == "kserve" else ()
        arguments = (*ARGUMENTS, "enveloped.mar", *more)
        properties = f"default_workers_per_model=1\n{settings}"
        theirs = TorchServe(root / f"theirs-{name}", properties, arguments, None)
        ours = Running(root / f"ours-{name}", properties, arguments, None)
        theirs.store = ours.store = store
        made[name] = theirs, ours
    try:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(TorchServe.start, (theirs for theirs, _ in made.values())))
        for _, ours in made.values():
            ours.start()
        yield made
    finally:
        for server in (s for pair in made.values() for s in pair if s.process is not None):
            server.stop()


def tensor(datatype: str, shape: list[int], data: list[Any]) -> dict[str, Any]:
    return {"name": datatype.lower(), "datatype": datatype, "shape": shape, "data": data}


INSTANCES = [{"instances": [1, "a", {"b": 2}]}, {"instances": [[1.5, 2]]}, {"instances": [{}]}]
ENCODED = {"instances": [{"b64": "aGFsbG8="}, {"b64": "aGFsbG8=", "more": 1}]}
INPUTS = [
    {"id": "mine", "inputs": [tensor("INT64", [2], [1, 2])]},
    {"id": "mine", "inputs": [tensor("FP64", [1], [0.5]), tensor("BYTES", [1], ["text"])]},
    {"id": "mine", "inputs": [tensor("BOOL", [1], [True])]},
]
ASKED = [
    *(
        (name, path, body)
        for name in ("json", "kserve")
        for path in ("/predictions/enveloped", "/v1/models/enveloped:predict")
        for body in [*INSTANCES, ENCODED]
    ),
    *((name, "/explanations/enveloped", INSTANCES[0]) for name in ("json", "kserve")),
    *((name, "/v1/models/enveloped:explain", INSTANCES[0]) for name in ("json", "kserve")),
    *(("kservev2", "/v2/models/enveloped/infer", body) for body in INPUTS),
    *(("kservev2", "/predictions/enveloped", body) for body in INPUTS),
    *(("body", "/predictions/enveloped", body) for body in ({"a": 1}, [1, 2], "text")),
]


@pytest.mark.parametrize(("name", "path", "body"), ASKED)
def test_answers(pairs: Pairs, name: str, path: str, body: Any) -> None:
    theirs, ours = (s.ask("POST", path, json.dumps(body), KIND) for s in pairs[name])

    assert aspects(theirs) == aspects(ours), f"\ntheirs {shown(theirs)}\nours   {shown(ours)}"
    assert 200 == ours.status


def test_legacy_metrics(pairs: Pairs) -> None:
    texts = [s.ask("GET", "/metrics", kind="metrics").text for s in pairs["json"]]

    assert families(texts[0]) == families(texts[1])
    assert 3 == len(families(texts[0]))


STAMP = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d,\d{3} - "


def lines(server: Running, file: str, of: str) -> list[str]:
    """What a log says, with everything made alike that is of the moment or of the machine."""
    text = (server.root / "logs" / file).read_text()
    found = [line for line in text.splitlines() if of in line]
    assert all(re.match(STAMP, line) for line in found), found
    plain = (without_ids(re.sub(STAMP, "", line)) for line in found)
    plain = (re.sub(r"timestamp:\d+$", "timestamp:T", line) for line in plain)
    plain = (re.sub(r"^/127\.0\.0\.1:\d+ ", "/127.0.0.1:P ", line) for line in plain)
    plain = (re.sub(r" \d+$", " MS", line) for line in plain)
    plain = (re.sub(r":W-\d+-", ":W-N-", line) for line in plain)
    return [re.sub(r"((?:Time|microseconds)\.\w+):[\d.]+\|", r"\1:V|", line) for line in plain]


def told(server: Running) -> dict[str, list[str]]:
    """What the logs say; the error counter has its model's name here, and is left out."""
    own = lines(server, "model_metrics.log", "own_metrics")
    numbers = [lines(server, "ts_metrics.log", of) for of in ("4XX", "ts_inference_", "Time")]
    return {
        "model_metrics.log": [line for line in own if not line.startswith("Mistakes")],
        "access_log.log": lines(server, "access_log.log", "/predictions/"),
        "ts_metrics.log": sorted({line for found in numbers for line in found}),
    }


def is_complete(found: dict[str, list[str]]) -> bool:
    """Tells whether the last line that each log will get is there."""
    ends = {
        "model_metrics.log": "PredictionTime",
        "access_log.log": "/absent?a=b",
        "ts_metrics.log": "4XX",
    }
    return all(any(word in line for line in found[name]) for name, word in ends.items())


def covers(found: dict[str, list[str]], wanted: dict[str, list[str]]) -> bool:
    """Tells whether all is there; of our own numbers there may be more."""
    alike = all(found[name] == wanted[name] for name in ("model_metrics.log", "access_log.log"))
    return alike and {*wanted["ts_metrics.log"]} <= {*found["ts_metrics.log"]}


def test_logs_of_metrics_and_of_access(pairs: Pairs) -> None:
    """The same lines in the same files, which are written in the background."""
    theirs, ours = pairs["kserve"]
    for server in pairs["kserve"]:
        server.ask("POST", "/predictions/own_metrics", '{"instances": [{"data": 1}]}', KIND)
        server.ask("POST", "/predictions/absent?a=b", "x")
    theirs.until(lambda: is_complete(told(theirs)), "not all lines", 15)
    wanted = told(theirs)
    with contextlib.suppress(AssertionError):
        ours.until(lambda: covers(told(ours), wanted), "not the same lines", 15)
    found = told(ours)

    assert wanted["model_metrics.log"] == found["model_metrics.log"]
    assert wanted["access_log.log"] == found["access_log.log"]
    assert {*wanted["ts_metrics.log"]} <= {*found["ts_metrics.log"]}
