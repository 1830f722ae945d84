"""V2 inference over HTTP with a handler that does nothing, in JSON and in binary form.

    python benchmarks/v2.py
    python benchmarks/v2.py --other http://127.0.0.1:8000/v2/models/identity/infer

With ``--other``, which may be given several times, another server that serves the same (FP32,
``IN`` to ``OUT``, any shape) is asked the same in turn, and the ratio to it stands in brackets.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import urllib.error
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
    Case("JSON, 4096 numbers", 4096, False, (1, 32)),
    Case("binary, 64 B", 16, True, (1, 32)),
    Case("binary, 64 KiB", 16 << 10, True, (1, 32)),
    Case("binary, 4 MiB", 1 << 20, True, (1, 4)),
)


def line(case: Case, count: int, urls: list[str], seconds: int, turns: int) -> str:
    """Returns a row of the table: requests/s and p99 of each server, medians of its turns."""
    able = [url for url in urls if url == urls[0] or answers(case, url)]
    loads: dict[str, list[Load]] = {url: [] for url in able}
    for turn in range(turns):
        for url in able if turn % 2 == 0 else reversed(able):
            loads[url].append(measure(case.target(url), count, seconds))
    bad = sum(load.bad for each in loads.values() for load in each)
    rates = {url: statistics.median(load.rate for load in loads[url]) for url in able}
    late = {url: statistics.median(load.p99_ms for load in loads[url]) for url in able}
    cells = [f"{rates[url]:.0f} / {late[url]:.2f}" if url in rates else "no answer" for url in urls]
    ratios = [f"{rates[urls[0]] / rates[url]:.2f}x" for url in able[1:]]
    cells[0] += f" ({', '.join(ratios)})" if ratios else ""
    wrong = f", {bad} went wrong" if bad else ""
    return f"| {case.name}, {count} connections{wrong} | {' | '.join(cells)} |"


def answers(case: Case, url: str) -> bool:
    """Tells whether a server knows such requests: not all know the binary form."""
    try:
        case.check(url)
    except urllib.error.HTTPError:
        return False
    return True


@click.command(help=__doc__, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-s", "--seconds", default=2, show_default=True, help="Length of each load.")
@click.option("-t", "--turns", default=3, show_default=True, help="Loads of each case.")
@click.option("--other", multiple=True, help="URL of another server's infer call.")
def main(seconds: int, turns: int, other: tuple[str, ...]) -> None:
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
            urls = [ours, *other]
            for case in CASES:
                case.check(ours)
            measure(CASES[0].target(ours), 8, 1)
            click.echo(f"| requests/s / p99 ms | marserve |{' other |' * len(other)}")
            click.echo("| --- " * (1 + len(urls)) + "|")
            for case in CASES:
                for count in case.connections:
                    click.echo(line(case, count, urls, seconds, turns))


if __name__ == "__main__":
    sys.exit(main())
