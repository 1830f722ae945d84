"""Requests to handlers written as TorchServe's documentation shows them, a feature each."""

from __future__ import annotations

import json
from typing import Any

from tests.differential.cases import BYTES, JSON, RAISES, STREAM, TEXT, Case, ask, manage

HANDLERS = "../differential/handlers/"  # seen from tests/services
ONE = "minWorkers: 1\nmaxWorkers: 1\nresponseTimeout: 30\n"
MODELS = {
    "base_style": ("base_style", f"{ONE}handler: {{profile: true}}\n"),  # its stages are timed
    "configured": (
        "configured",
        f"{ONE}handler: {{model_name: x, max_length: 150}}\nown: [1, a]\n",
    ),
    "own_metrics": (f"{HANDLERS}own_metrics", ONE),
    "squares": (
        "micro_batching",
        f"{ONE}batchSize: 4\nmaxBatchDelay: 300\nmicro_batching: {{micro_batch_size: 2,"
        " parallelism: {preprocess: 1, inference: 2, postprocess: 3}}\n",
    ),
    "steps": (
        f"{HANDLERS}stepwise",
        f"{ONE}batchSize: 4\nmaxBatchDelay: 10\ncontinuousBatching: true\n",
    ),
    "streamed": (f"{HANDLERS}streamed", ONE),
    "sums": (
        f"{HANDLERS}sequences",
        f"{ONE}batchSize: 4\nmaxBatchDelay: 20\nsequenceBatching: true\nmaxNumSequence: 4\n"
        "sequenceMaxIdleMSec: 60000\nmaxSequenceJobQueueSize: 10\n",
    ),
}
"""Name to service and model-config.yaml, loaded at start."""
OVERLAPPING = (f"{HANDLERS}overlapping", f"{ONE}asyncCommunication: true\n")
"""Registered later, more than once if need be: TorchServe's worker of this kind fails to load now
and then, by a race with its own connection."""


def one(
    name: str, model: str, body: Any = b"", headers: dict[str, str] = TEXT, **more: Any
) -> Case:
    return ask(name, body, headers, path=f"/predictions/{model}", **more)


def add(name: str, number: int, sequence: str = "", *flags: str, **more: Any) -> Case:
    headers = {f"ts_request_sequence_{flag}": "true" for flag in flags}
    if sequence:
        headers["ts_request_sequence_id"] = sequence
    return one(name, "sums", str(number).encode(), TEXT | headers, **more)


def count(name: str, start: int, steps: int, **more: Any) -> Case:
    wish = json.dumps({"from": start, "count": steps}).encode()
    return one(name, "steps", wish, JSON, **more)


CLOSED = dict.fromkeys(("headers", "type", "message"), "503 that says what may be the cause")
WORKFLOW = dict.fromkeys(
    ("status", "type", "message", "body"), "switched off (`Registering new workflows is disabled.`)"
)

FEATURES = [
    one("words as a stream", "streamed", b"one two three", differs=STREAM),
    one("a stream of one piece", "streamed", b"one", differs=STREAM),
    one("a stream with a status", "streamed", b"status two", differs=STREAM),
    one("no piece but the last", "streamed", b" "),
    one("micro-batching", "squares", b"3"),
    one("micro-batching explained", "squares", b"3"),
    ask("micro-batching's explanation", b"3", path="/explanations/squares"),
    add("a sequence begins", 1, "a", "start"),
    add("a sequence goes on", 2, "a"),
    add("another sequence begins", 10, "b", "start"),
    add("the first goes on", 3, "a"),
    add("a sequence ends", 4, "a", "end"),
    add("a sequence that is over", 5, "a", differs=CLOSED),
    add("a sequence that never began", 5, "never", differs=CLOSED),
    add("a sequence of one", 7, "c", "start", "end"),
    count("steps", 3, 3, differs=STREAM),
    count("steps again", 7, 2, differs=STREAM),
    one("steps that cannot begin", "steps", b"{}", JSON, differs=RAISES),
    one("own metrics", "own_metrics", b"x"),
    manage("register a workflow without url", "POST", "/workflows"),
    manage("register an unknown workflow", "POST", "/workflows?url=absent.war"),
    manage("register a workflow", "POST", "/workflows?url=chain.war", differs=WORKFLOW),
    ask("ask a workflow", b"x", BYTES, path="/wfpredict/chain", differs=WORKFLOW),
    manage("unregister a workflow", "DELETE", "/workflows/chain", differs=WORKFLOW),
    manage("scale what streams", "PUT", "/models/streamed?min_worker=1&synchronous=true"),
    manage("describe a sequence", "GET", "/models/sums"),
    manage("describe a continuous batch", "GET", "/models/steps"),
]
