"""Workflows through a real server: packed, registered, asked, and gone without a trace."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.e2e.running import BIN, SERVICES, Answer, Running, running

STEPS = SERVICES / "workflow" / "steps.py"
SPECS = {
    "chain": "models: {shout: {url: echo.mar}}\ndag: {first: [shout], shout: [upper]}",
    "diamond": "dag: {first: [upper, length], upper: [join], length: [join]}",
    "leaves": "dag: {first: [upper, length]}",
    "slow": "models: {wait: {url: slow.mar, timeout-ms: 300}}\ndag: {first: [wait], wait: [upper]}",
    "patient": "dag: {first: [held], held: [upper]}",
    "flaky": "models: {m: {url: flaky.mar, retry-attempts: 3}}\ndag: {m: [upper]}",
    "incomplete": "models: {m: {url: absent.mar}}\ndag: {first: [m]}",
    "flood": "models: {m: {url: flood.mar}}\ndag: {m: [upper]}",
    "unloadable": "models: {m: {url: broken.mar}}\ndag: {first: [m]}",
}


def pack(store: Path, name: str, spec: str) -> None:
    file = store.parent / f"{name}.yaml"
    file.write_text(spec)
    command = [str(BIN / "archive-workflow"), "--workflow-name", name, "--spec-file", str(file)]
    command += ["--handler", str(STEPS), "--export-path", str(store), "-f"]
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture(scope="module")
def flows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    root = tmp_path_factory.mktemp("workflows")
    for server in running(root, models=None):
        server.pack("echo", "echo")
        server.pack("slow", "slow")
        server.pack("broken", "broken_load")
        pack_function(server.store, "flaky")
        pack_function(server.store, "flood")
        for name, spec in SPECS.items():
            pack(server.store, name, spec)
        server.start()
        yield server


def pack_function(store: Path, function: str) -> None:
    command = [str(BIN / "archive-model"), "--model-name", function, "--version", "1.0"]
    command += ["--handler", f"{STEPS}:{function}", "--export-path", str(store)]
    subprocess.run(command, check=True, capture_output=True)


def register(server: Running, name: str) -> Answer:
    return server.manage("POST", f"/workflows?url={name}.war")


@pytest.fixture
def registered(flows: Running, request: pytest.FixtureRequest) -> Iterator[Running]:
    answer = register(flows, request.param)
    assert answer.status == 200, answer.text
    yield flows
    flows.manage("DELETE", f"/workflows/{request.param}")


def ask(server: Running, name: str, body: bytes | str, **headers: str) -> Answer:
    return server.ask("POST", f"/wfpredict/{name}", body, headers)


@pytest.mark.parametrize("registered", ["chain"], indirect=True)
def test_a_chain_of_functions_and_a_model(registered: Running) -> None:
    answer = ask(registered, "chain", b"quietly")

    assert (answer.status, answer.text) == (200, "QUIETLY")
    assert answer.headers["content-type"] == "application/json"
    assert "x-request-id" in answer.headers


@pytest.mark.parametrize("registered", ["diamond"], indirect=True)
def test_a_join_gets_results_by_name(registered: Running) -> None:
    answer = ask(registered, "diamond", b"abc")

    assert answer.json == {"length": json.dumps({"bytes": 3}, indent=2), "upper": "ABC"}


@pytest.mark.parametrize("registered", ["leaves"], indirect=True)
def test_several_last_nodes_answer_together(registered: Running) -> None:
    answer = ask(registered, "leaves", b"abc")

    assert answer.json == {"upper": "ABC", "length": {"bytes": 3}}


@pytest.mark.parametrize("registered", ["diamond"], indirect=True)
def test_large_values_pass_between_the_steps(registered: Running) -> None:
    body = b"x" * 3_000_000

    answer = ask(registered, "diamond", body)

    assert answer.json["upper"] == "X" * len(body)


@pytest.mark.parametrize("registered", ["flood"], indirect=True)
def test_what_a_node_streams_is_put_together_up_to_the_limit_of_an_answer(
    registered: Running,
) -> None:
    fits = ask(registered, "flood", b"6")
    flood = ask(registered, "flood", b"1000000")

    assert (fits.status, fits.body) == (200, b"X" * 6_000_000)
    assert (flood.status, flood.json["type"]) == (500, "InternalServerException"), flood.text
    assert "Workflow node m: The response of at least 7000000 bytes" in flood.message
    assert "max_response_size (6553500 bytes)" in flood.message
    assert ask(registered, "flood", b"1").status == 200, "the endless stream was not given up"


@pytest.mark.parametrize("registered", ["flaky"], indirect=True)
def test_a_failing_node_is_tried_again(registered: Running, tmp_path: Path) -> None:
    body = {"count": str(tmp_path / "count"), "succeed_at": 3}

    assert ask(registered, "flaky", json.dumps(body)).status == 200
    assert (tmp_path / "count").read_text() == "xxx"


@pytest.mark.parametrize("registered", ["flaky"], indirect=True)
def test_a_node_that_goes_on_failing_is_named(registered: Running, tmp_path: Path) -> None:
    body = {"count": str(tmp_path / "count"), "succeed_at": 9}

    answer = ask(registered, "flaky", json.dumps(body))

    assert (answer.status, answer.json["type"]) == (500, "InternalServerException")
    assert answer.message.startswith("Workflow node m: ")
    assert "not yet" in answer.message
    assert (tmp_path / "count").read_text() == "xxx"


@pytest.mark.parametrize("registered", ["slow"], indirect=True)
def test_a_node_that_takes_too_long(registered: Running) -> None:
    answer = ask(registered, "slow", b"5")

    assert (answer.status, answer.json["type"]) == (504, "RequestTimeoutException")
    assert "Workflow node wait" in answer.message


@pytest.mark.parametrize("registered", ["patient"], indirect=True)
def test_the_clients_own_limit_holds_for_the_whole(registered: Running, tmp_path: Path) -> None:
    body = json.dumps({"begun": str(tmp_path / "begun"), "go": str(tmp_path / "go")})

    answer = ask(registered, "patient", body, **{"X-Request-Timeout": "0.2"})
    (tmp_path / "go").touch()

    assert (answer.status, answer.json["type"]) == (504, "RequestTimeoutException")


def test_the_life_of_a_workflow(flows: Running) -> None:
    before = flows.manage("GET", "/models").json["models"]
    assert register(flows, "chain").json == {
        "status": "Workflow chain has been registered and scaled successfully."
    }
    again = register(flows, "chain")
    assert (again.status, again.json["type"]) == (409, "ConflictStatusException")
    assert ask(flows, "chain", b"x").status == 200, "the conflict cost the first one"
    listed = flows.manage("GET", "/workflows").json
    assert listed == {"workflows": [{"workflowName": "chain", "workflowUrl": "chain.war"}]}
    (described,) = flows.manage("GET", "/workflows/chain").json
    assert described["workflowDag"] == {"first": ["shout"], "shout": ["upper"], "upper": []}
    names = [m["modelName"] for m in flows.manage("GET", "/models").json["models"]]
    assert {"chain__first", "chain__shout", "chain__upper"} <= set(names)

    gone = flows.manage("DELETE", "/workflows/chain")

    assert gone.json == {"status": 'Workflow "chain" unregistered'}
    assert flows.manage("GET", "/workflows").json == {"workflows": []}
    assert flows.manage("GET", "/models").json["models"] == before
    missing = ask(flows, "chain", b"x")
    assert (missing.status, missing.json["type"]) == (404, "WorkflowNotFoundException")
    assert missing.message == "Workflow not found: chain"


@pytest.mark.parametrize(
    ("name", "status", "type", "words"),
    [
        ("incomplete", 500, "WorkflowException", "node m: Model not found at: absent.mar"),
        ("unloadable", 500, "WorkflowException", "node m: Failed to start workers"),
        ("absent", 404, "WorkflowNotFoundException", "in workflow store: absent.war"),
    ],
)
def test_what_cannot_be_registered_leaves_nothing(
    flows: Running, name: str, status: int, type: str, words: str
) -> None:
    before = flows.manage("GET", "/models").json["models"]

    answer = register(flows, name)

    assert (answer.status, answer.json["type"]) == (status, type)
    assert words in answer.message
    assert str(flows.root) not in answer.text
    assert flows.manage("GET", "/workflows").json == {"workflows": []}
    assert flows.manage("GET", "/models").json["models"] == before


def test_an_archive_of_something_else(flows: Running) -> None:
    (flows.store / "text.war").write_text("no zip")

    answer = register(flows, "text")

    assert (answer.status, answer.json["type"]) == (400, "InvalidWorkflowException")
    assert str(flows.root) not in answer.text


class Held:
    """A request that waits in the second of three steps until it is let go.

    Args:
        server: Has the workflow ``patient``.
        folder: For the files that step and test signal with.
    """

    def __init__(self, server: Running, folder: Path) -> None:
        self.server = server
        self.begun, self.go = folder / "begun", folder / "go"
        self.answer: Answer | None = None
        self._client = threading.Thread(target=self._ask)
        self._client.start()
        server.until(self.begun.exists, "the step has not begun")

    def _ask(self) -> None:
        body = json.dumps({"begun": str(self.begun), "go": str(self.go)})
        self.answer = ask(self.server, "patient", body)

    def release(self) -> None:
        self.go.touch()
        self._client.join(30)
        assert self.answer is not None
        assert (self.answer.status, self.answer.text) == (200, "HELD")


def test_requests_under_way_are_answered_when_a_workflow_goes(
    flows: Running, tmp_path: Path
) -> None:
    assert register(flows, "patient").status == 200
    held = Held(flows, tmp_path)
    with ThreadPoolExecutor(1) as pool:
        gone = pool.submit(flows.manage, "DELETE", "/workflows/patient")
        flows.until(lambda: not flows.manage("GET", "/workflows").json["workflows"], "still there")
        assert ask(flows, "patient", b"{}").status == 404

        held.release()

        assert gone.result(30).status == 200


def test_requests_under_way_are_answered_when_the_server_stops(
    server: Running, tmp_path: Path
) -> None:
    pack(server.store, "patient", SPECS["patient"])
    server.models = None
    server.start()
    assert register(server, "patient").status == 200
    held = Held(server, tmp_path)

    assert server.process is not None
    server.process.terminate()
    server.wait_for("stopping: accepted requests have")
    held.release()

    assert server.process.wait(30) == 0
