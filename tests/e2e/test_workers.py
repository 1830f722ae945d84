"""Workers that fail in every way, and what callers, describe and the log are told."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

from tests.e2e.running import Running, pack


def test_killed_worker_costs_nobody_a_request(server: Running) -> None:
    server.pack("echo", "echo", "minWorkers: 1\nmaxWorkers: 1\n")
    server.start()
    (pid,) = server.worker_pids("echo")
    stop, statuses = threading.Event(), []

    def client() -> None:
        while not stop.is_set():
            statuses.append(server.predict("echo", "hello").status)

    clients = [threading.Thread(target=client) for _ in range(8)]
    for thread in clients:
        thread.start()
    server.until(lambda: len(statuses) > 100, "no answers")
    os.kill(pid, signal.SIGKILL)
    server.until(lambda: server.worker_pids("echo") not in ([], [pid]), "no new worker")
    seen = len(statuses)
    server.until(lambda: len(statuses) > seen + 100, "no answers after the kill")
    stop.set()
    for thread in clients:
        thread.join()

    assert set(statuses) == {200}


def test_request_that_kills_two_workers_is_named_as_the_cause(server: Running) -> None:
    server.pack("exiting", "exiting", "minWorkers: 1\nmaxWorkers: 1\nbatchSize: 4\n")
    server.start()

    answers = server.together("exiting", ["kill", "fine", "fine", "fine"])

    assert [a.status for a in answers] == [507, 200, 200, 200]
    assert answers[0].json["type"] == "InternalServerException"
    assert answers[0].message.startswith("Worker died.")
    assert "SIGKILL" in answers[0].message


def test_hard_exit_and_sys_exit_differ(server: Running) -> None:
    server.pack("exiting", "exiting", "minWorkers: 1\nmaxWorkers: 1\n")
    server.start()
    (pid,) = server.worker_pids("exiting")

    polite = server.predict("exiting", "sys")
    after = server.predict("exiting", "pid")
    hard = server.predict("exiting", "hard")

    assert (polite.status, after.text) == (500, str(pid))
    assert "sys.exit(3)" in polite.message
    assert hard.status == 500
    assert "exited with status 3" in hard.message
    assert server.predict("exiting", "fine").text == "alive"


def test_bad_request_fails_alone_in_its_batch(server: Running) -> None:
    server.pack("raising", "raising", "minWorkers: 1\nmaxWorkers: 1\nbatchSize: 8\n")
    server.start()

    bodies = ["ok", "value", "ok", "prediction", "memory", "cuda", "key", "ok"]
    answers = server.together("raising", bodies)

    assert [a.status for a in answers] == [200, 500, 200, 599, 507, 507, 500, 200]
    assert {a.text for a in answers if a.status == 200} == {"fine"}
    assert answers[1].message == "Prediction failed: ValueError: the value is wrong"
    assert answers[3].message == "Some Prediction Error"
    assert answers[6].message == "Prediction failed: KeyError: 'absent'"
    server.wait_for("Traceback")  # the log has what the answers must not
    assert all("Traceback" not in a.text for a in answers)


def test_wrong_number_of_results_blames_the_handler(server: Running) -> None:
    server.pack("wrong", "wrong_length", "minWorkers: 1\nmaxWorkers: 1\n")
    server.start()

    answer = server.predict("wrong", "x")

    assert answer.status == 500
    assert answer.message.startswith("number of batch response mismatched: ")


def test_strict_compatibility_answers_with_the_old_statuses(tmp_path: Path) -> None:
    server = Running(tmp_path, properties="compat=strict")
    server.pack("raising", "raising", "minWorkers: 1\nmaxWorkers: 1\n")
    try:
        server.start()

        assert server.predict("raising", "value").status == 503
    finally:
        server.stop()


def test_load_failure_is_told_everywhere(server: Running) -> None:
    server.pack("broken", "broken_import", "minWorkers: 1\nmaxWorkers: 1\n")
    server.start()

    answer = server.predict("broken", "x")

    assert answer.status == 503
    assert "ModuleNotFoundError" in answer.message
    assert answer.headers["retry-after"] == "1"
    assert server.ask("GET", "/ping").status == 500
    assert server.ask("GET", "/health/ready").status == 503
    server.wait_for("Traceback")
    assert "ModuleNotFoundError" in server.describe("broken")["lastError"]


def test_registration_that_cannot_load_leaves_nothing(server: Running, tmp_path: Path) -> None:
    server.models = None
    server.pack("broken", "broken_load")
    server.start()

    answer = server.manage("POST", "/models?url=broken.mar&initial_workers=1")

    assert answer.status == 500
    assert answer.message.startswith("Failed to start workers for model broken version: 1.0")
    assert server.manage("GET", "/models/broken").status == 404
    pack(server.store, "broken", "echo")
    assert server.manage("POST", "/models?url=broken.mar&initial_workers=1").status == 200
    assert server.predict("broken", "good").text == "good"


def test_slow_call_gets_its_answer_without_a_new_worker(server: Running) -> None:
    config = "minWorkers: 1\nmaxWorkers: 1\nresponseTimeout: 1\n"
    server.pack("slow", "slow", config)
    server.start()
    (pid,) = server.worker_pids("slow")

    answer = server.predict("slow", "1.4")

    assert answer.status == 504
    assert "responseTimeout (1 s)" in answer.message
    assert server.predict("slow", "0").text == "slept 0"
    assert server.worker_pids("slow") == [pid]


def test_hung_worker_is_replaced(server: Running) -> None:
    server.pack("slow", "slow", "minWorkers: 1\nmaxWorkers: 1\nresponseTimeout: 1\n")
    server.start()
    (pid,) = server.worker_pids("slow")

    assert server.predict("slow", "3600").status == 504
    assert server.predict("slow", "0", timeout_s=30).text == "slept 0"
    assert server.worker_pids("slow") != [pid]


def test_stopped_worker_is_replaced_and_its_request_answered(server: Running) -> None:
    server.pack("echo", "echo", "minWorkers: 1\nmaxWorkers: 1\nresponseTimeout: 1\n")
    server.start()
    (pid,) = server.worker_pids("echo")
    os.kill(pid, signal.SIGSTOP)

    assert server.predict("echo", "lost").status == 504
    assert server.predict("echo", "found", timeout_s=30).text == "found"


def test_deadline_counts_the_queue(server: Running) -> None:
    server.pack("slow", "slow", "minWorkers: 1\nmaxWorkers: 1\n")
    server.start()
    busy = threading.Thread(target=server.predict, args=("slow", "2"))
    busy.start()
    server.until(lambda: "batch of 1 begins" in server.console, "the worker is not busy")

    late = server.predict("slow", "0", headers={"x-request-timeout": "0.3"})

    busy.join()
    assert late.status == 504
    assert "in the queue" in late.message
    assert late.seconds < 1.5
    assert server.console.count("begins") == 1  # what is late is not run


def test_full_queue_refuses_and_says_when_to_come_back(server: Running) -> None:
    server.pack("slow", "slow", "minWorkers: 1\nmaxWorkers: 1\njobQueueSize: 2\n")
    server.start()

    answers = server.together("slow", ["0.5"] * 6)

    statuses = sorted(a.status for a in answers)
    assert statuses == [200, 200, 200, 503, 503, 503]
    refused = next(a for a in answers if a.status == 503)
    assert refused.headers["retry-after"] == "1"
    assert "jobQueueSize 2" in refused.message


def test_scaling_up_and_down_under_load(server: Running) -> None:
    server.pack("exiting", "exiting", "minWorkers: 1\nmaxWorkers: 1\n")
    server.start()
    stop, statuses = threading.Event(), []

    def client() -> None:
        while not stop.is_set():
            statuses.append(server.predict("exiting", "fine").status)

    thread = threading.Thread(target=client)
    thread.start()
    for count in (3, 1, 2):
        answer = server.manage(
            "PUT", f"/models/exiting?min_worker={count}&max_worker={count}&synchronous=true"
        )
        assert answer.status == 200, answer.text
        assert len(server.worker_pids("exiting")) == count
    stop.set()
    thread.join()

    assert set(statuses) == {200}


def test_accepted_requests_finish_when_the_server_stops(server: Running) -> None:
    server.pack("slow", "slow", "minWorkers: 1\nmaxWorkers: 1\n")
    server.start()
    answers = []
    caller = threading.Thread(target=lambda: answers.append(server.predict("slow", "1")))
    caller.start()
    server.until(lambda: "batch of 1 begins" in server.console, "the worker is not busy")

    code = server.stop()
    caller.join()

    assert (code, answers[0].text) == (0, "slept 1")


def test_signal_to_the_whole_group_costs_nobody_a_request(server: Running) -> None:
    server.pack("slow", "slow", "minWorkers: 1\nmaxWorkers: 1\n")
    server.start()
    (pid,) = server.worker_pids("slow")
    answers = []
    caller = threading.Thread(target=lambda: answers.append(server.predict("slow", "1")))
    caller.start()
    server.until(lambda: "batch of 1 begins" in server.console, "the worker is not busy")

    os.kill(pid, signal.SIGTERM)
    server.stop()
    caller.join()

    assert answers[0].text == "slept 1"


def test_nothing_is_left_of_a_killed_server(server: Running) -> None:
    server.pack("echo", "echo", "minWorkers: 2\nmaxWorkers: 2\n")
    server.start()
    pids = server.worker_pids("echo")
    assert server.process is not None

    server.process.kill()
    server.process.wait()

    for pid in pids:
        while Path(f"/proc/{pid}").exists() and "Z" not in _state(pid):
            threading.Event().wait(0.02)


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"
