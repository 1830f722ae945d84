"""V2 inference over HTTP with a handler that does nothing, in JSON and in binary form.

    python benchmarks/v2.py
    python benchmarks/v2.py --other http://127.0.0.1:8000/v2/models/identity/infer

With ``--other``, another server that serves the same (FP32, ``IN`` to ``OUT``, any shape) is asked
the same in turn, and the ratio to it stands in brackets.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import urllib.request
from array import array
from dataclasses import dataclass
from pathlib import Path

import click
from load import Load, Target, measure
from server import Server, ServerError
from suites import archive_model

HERE = Path(__file__).resolve().parent
LENGTH = "Inference-Header-Content-Length"


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of request.

    Args:
        name: As it stands in the table.
        count: Elements of the tensor, four bytes each.
        binary: Whether it and its answer are in binary form.
        connections: Numbers of connections to measure it with.
    """

    name: str
    count: int
    binary: bool
    connections: tuple[int, ...]

    def target(self, url: str) -> Target:
        """Returns the request."""
        values = array("f", [0.5 + index % 64 for index in range(self.count)])
        tensor: dict[str, object] = {"name": "IN", "datatype": "FP32", "shape": [1, self.count]}
        if not self.binary:
            tensor["data"] = values.tolist()
            return Target(url, json.dumps({"inputs": [tensor]}).encode(), "application/json")
        tensor["parameters"] = {"binary_data_size": 4 * self.count}
        wanted = {"name": "OUT", "parameters": {"binary_data": True}}
        head = json.dumps({"inputs": [tensor], "outputs": [wanted]}).encode()
        body = head + values.tobytes()
        return Target(url, body, "application/octet-stream", ((LENGTH, str(len(head))),))

    def check(self, url: str) -> None:
        """Asks once.

        Raises:
            ServerError: If the answer is not the tensor.
        """
        target = self.target(url)
        headers = {"Content-Type": target.content_type, **dict(target.headers)}
        request = urllib.request.Request(url, target.body, headers, method="POST")
        with urllib.request.urlopen(request, timeout=30) as response:
            answer, size = response.read(), response.headers.get(LENGTH)
        values = array("f", [0.5 + index % 64 for index in range(self.count)])
        if self.binary:
            right = answer[int(size) :] == values.tobytes()
        else:
            right = json.loads(answer)["outputs"][0]["data"] == values.tolist()
        if not right:
            raise ServerError(f"{url}, {self.name}: the answer is not the tensor")


CASES = (
    Case("JSON, 16 numbers", 16, False, (1, 32)),
    Case("binary, 64 B", 16, True, (1, 32)),
    Case("binary, 64 KiB", 16 << 10, True, (1, 32)),
    Case("binary, 4 MiB", 1 << 20, True, (1, 4)),
)


def line(case: Case, count: int, urls: list[str], seconds: int, turns: int) -> str:
    """Returns a row of the table: requests/s and p99 of each server, medians of its turns."""
    loads: dict[str, list[Load]] = {url: [] for url in urls}
    for turn in range(turns):
        for url in urls if turn % 2 == 0 else reversed(urls):
            loads[url].append(measure(case.target(url), count, seconds))
    bad = sum(load.bad for each in loads.values() for load in each)
    rates = [statistics.median(load.rate for load in loads[url]) for url in urls]
    late = [statistics.median(load.p99_ms for load in loads[url]) for url in urls]
    cells = [f"{rate:.0f} / {p99:.2f}" for rate, p99 in zip(rates, late, strict=True)]
    if len(urls) > 1:
        cells[0] += f" ({rates[0] / rates[1]:.2f}x)"
    wrong = f", {bad} went wrong" if bad else ""
    return f"| {case.name}, {count} connections{wrong} | {' | '.join(cells)} |"


@click.command(help=__doc__, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-s", "--seconds", default=2, show_default=True, help="Length of each load.")
@click.option("-t", "--turns", default=3, show_default=True, help="Loads of each case.")
@click.option("--other", help="URL of another server's infer call.")
def main(seconds: int, turns: int, other: str | None) -> None:
    """Prints the table."""
    with tempfile.TemporaryDirectory(prefix="marserve-bench-") as name:
        work = Path(name)
        (store := work / "store").mkdir()
        archive_model(
            *("--model-name", "identity", "--version", "1.0"),
            *("--handler", HERE / "identity.py", "--export-path", store, "--force"),
        )
        settings: dict[str, object] = {"default_workers_per_model": 1}
        with Server(store, "identity.mar", work, settings) as server:
            ours = server.url("/v2/models/identity/infer")
            server.wait_answer(CASES[0].target(ours))
            urls = [ours, other] if other else [ours]
            for case in CASES:
                for url in urls:
                    case.check(url)
            measure(CASES[0].target(ours), 8, 1)
            click.echo(f"| requests/s / p99 ms | marserve |{' other |' if other else ''}")
            click.echo("| --- " * (1 + len(urls)) + "|")
            for case in CASES:
                for count in case.connections:
                    click.echo(line(case, count, urls, seconds, turns))


if __name__ == "__main__":
    sys.exit(main())
