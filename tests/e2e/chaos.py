"""Load on a server while things break, with every request counted.

With ``MARSERVE_CHAOS_REPORT=FILE``, each test adds a row to a table: sent, answered, failed, and
run twice.
"""

from __future__ import annotations

import http.client
import itertools
import json
import os
import threading
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.running import Running

CLIENT_LIMIT_S = 30
HEADER = (
    "| test | sent | answered right | failed, by status | never answered | run twice |\n"
    "| --- | --- | --- | --- | --- | --- |\n"
)


@dataclass(frozen=True)
class Outcome:
    """What became of one request; status 0 if its connection broke."""

    token: str
    fault: str
    status: int
    text: str

    @property
    def type(self) -> str:
        return str(json.loads(self.text)["type"])


class Chaos:
    """A server with the model ``chaos``, and eight clients that ask as fast as they are answered.

    Args:
        server: Not yet started.
        config: Lines of model-config.yaml.
    """

    def __init__(self, server: Running, config: str = "") -> None:
        self.server = server
        self.journal = server.root / "journal.txt"
        self.journal.touch()
        self.config = f"journal: {self.journal}\n{config}"
        self.outcomes: list[Outcome] = []
        self._stop = threading.Event()
        self._clients: list[threading.Thread] = []

    def start(self, minimum: int = 1, maximum: int | None = None) -> Chaos:
        workers = f"minWorkers: {minimum}\nmaxWorkers: {maximum or minimum}\n"
        self.server.pack("chaos", "chaos", self.config + workers)
        self.server.start()
        return self

    def __enter__(self) -> Chaos:
        self._clients = [threading.Thread(target=self._client, args=(n,)) for n in range(8)]
        for client in self._clients:
            client.start()
        self.wait(100)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for client in self._clients:
            client.join(CLIENT_LIMIT_S + 5)
            assert not client.is_alive(), "a client was never answered"
        self.report()

    def wait(self, count: int = 100) -> None:
        """Waits until so many more requests were answered."""
        wanted = len(self.outcomes) + count
        self.server.until(
            lambda: len(self.outcomes) >= wanted or self._stop.is_set(), "too few answers", 30
        )

    def ask(self, token: str, fault: str = "") -> Outcome:
        """Sends one request among the others."""
        answer = self.server.predict("chaos", f"{token} {fault}".rstrip())
        outcome = Outcome(token, fault, answer.status, answer.text)
        self.outcomes.append(outcome)
        return outcome

    def _client(self, number: int) -> None:
        port = self.server.ports["inference"]
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=CLIENT_LIMIT_S)
        for index in itertools.count():
            if self._stop.is_set():
                break
            token = f"c{number}-{index}"
            try:
                connection.request("POST", "/predictions/chaos", token)
                response = connection.getresponse()
                self.outcomes.append(Outcome(token, "", response.status, response.read().decode()))
            except (OSError, http.client.HTTPException) as error:
                self.outcomes.append(Outcome(token, "", 0, repr(error)))
                break
        connection.close()

    # -- what is to be shown ---------------------------------------------------------------------

    def good(self) -> list[Outcome]:
        return [o for o in self.outcomes if not o.fault]

    def executions(self) -> Counter[str]:
        """How often each token was run."""
        return Counter(token for batch in self.batches() for token in batch[1:])

    def batches(self) -> list[list[str]]:
        """Process id and tokens of each call of the handler."""
        return [line.split() for line in self.journal.read_text().splitlines()]

    def check(self, *allowed: int) -> None:
        """Every good request was answered right, once, or with one of the allowed statuses."""
        good = self.good()
        assert len({o.token for o in good}) == len(good)
        assert Counter(o.status for o in good).keys() <= {200, *allowed}, self.summary()
        wrong = [o for o in good if o.status == 200 and o.text.split()[0] != o.token]
        assert not wrong, wrong[:3]
        assert all(o.type for o in good if o.status not in (0, 200))
        ran = self.executions()
        assert {o.token for o in good if o.status == 200} <= ran.keys()

    def row(self) -> str:
        """A row of the report: what became of every request of this test."""
        ran, statuses = self.executions(), Counter(o.status for o in self.outcomes)
        right = sum(o.status == 200 and o.text.split()[0] == o.token for o in self.outcomes)
        failed = [f"{n} x {status}" for status, n in sorted(statuses.items()) if status > 200]
        twice = sum(ran[o.token] > 1 for o in self.outcomes)
        name = os.environ["PYTEST_CURRENT_TEST"].rpartition("::")[2].removesuffix(" (call)")
        cells = (f"`{name}`", len(self.outcomes), right, ", ".join(failed) or 0, statuses[0], twice)
        return f"| {' | '.join(map(str, cells))} |\n"

    def report(self) -> None:
        """Adds the row to the report that was asked for, if one was."""
        if path := os.environ.get("MARSERVE_CHAOS_REPORT"):
            with open(path, "a") as file:
                file.write(self.row() if file.tell() else HEADER + self.row())

    def check_run_once(self, but: int = 0) -> None:
        """No good request ran twice, except at most ``but`` that were tried again."""
        sent = {o.token for o in self.good()}
        twice = {token: n for token, n in self.executions().items() if n > 1 and token in sent}
        assert len(twice) <= but, twice
        assert set(twice.values()) <= {2}, twice

    def summary(self) -> str:
        strange = [o for o in self.outcomes if o.status != 200][:5]
        return f"{Counter(o.status for o in self.outcomes)} {strange}"

    def serving(self, workers: int) -> list[int]:
        """Waits until so many workers are ready; returns their process ids."""

        def ready() -> list[int]:
            pids = self.server.worker_pids("chaos")
            return pids if len(pids) == workers else []

        return self.server.until(ready, f"not {workers} workers")  # type: ignore[no-any-return]


def children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in text.split()]


def titled(pid: int, title: str) -> bool:
    return title.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
