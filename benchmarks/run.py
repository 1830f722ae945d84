"""Measures marserve: round trips of a no-op handler, MiniLM, start-up and memory.

    python benchmarks/run.py                          everything, a few minutes
    python benchmarks/run.py --suite noop -s 5        one suite, 5 s a load
    python benchmarks/run.py --against earlier.json   with ratios to an earlier run

Each suite starts the real `serve` with one worker, checks the answers, warms up, loads, stops. The
table goes to the terminal; table, JSON and plot go to --out.
"""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import click
import psutil
from load import Load, measure
from report import Row, plot, read_json, table, write_json
from server import Server, ServerError
from suites import Payload, Suite, all_suites
from tqdm import tqdm

WARM_UP_S = 1


class Disturbance:
    """Processor time that neither the server nor the load used, while it was watched.

    Args:
        server: Whose processor time is known.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._began, self._others = time.perf_counter(), self._sum()

    def percent(self) -> float:
        """Returns what other programs used since, in percent of one core."""
        return 100 * (self._sum() - self._others) / (time.perf_counter() - self._began)

    def _sum(self) -> float:
        machine = psutil.cpu_times()
        own = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        mine = sum(usage.ru_utime + usage.ru_stime for usage in own)
        return float(sum(machine[:3])) - self._server.cpu_s() - mine  # user, nice, system


def load_once(server: Server, suite: Suite, payload: Payload, count: int, seconds: int) -> Row:
    """Loads one payload over so many connections."""
    watch = Disturbance(server)
    load: Load = measure(payload.target(server, suite.name), count, seconds)
    values = {"rps": load.rate}
    if load.requests:
        values |= {"p50_ms": load.p50_ms, "p99_ms": load.p99_ms}
    if load.bad:
        values["bad"] = load.bad
    return Row(suite.name, payload.name, count, values, watch.percent())


def run_suite(suite: Suite, seconds: int, ends: float) -> Iterator[Row]:
    """Yields the suite's rows; begins no further load once the time is up."""
    with tempfile.TemporaryDirectory(prefix="marserve-bench-") as name:
        work = Path(name)
        (store := work / "store").mkdir()
        suite.pack(store)
        with Server(store, f"{suite.name}.mar", work, suite.settings) as server:
            start_s = answer_rightly(server, suite)
            yield Row(suite.name, "start", 0, {"first_answer_s": start_s})
            yield Row(suite.name, "idle", 0, {"pss_mb": server.pss_mb()})
            for payload in suite.payloads:
                measure(payload.target(server, suite.name), 1, WARM_UP_S)
                for count in payload.connections:
                    if time.monotonic() > ends:
                        return
                    yield load_once(server, suite, payload, count, seconds)
            yield Row(suite.name, "loaded", 0, {"pss_mb": server.pss_mb()})


def answer_rightly(server: Server, suite: Suite) -> float:
    """Asks every payload once; returns the seconds from launch to the first answer."""
    seconds = []
    for payload in suite.payloads:
        took, answer = server.wait_answer(payload.target(server, suite.name))
        seconds.append(took)
        if payload.echoed and answer != payload.body:
            raise ServerError(f"{suite.name}, {payload.name}: the answer is not the body")
    return seconds[0]


@click.command(help=__doc__, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--suite", "names", multiple=True, help="Suite to run; may be repeated. [default: all]"
)
@click.option("-s", "--seconds", default=3, show_default=True, help="Length of each load.")
@click.option("--limit", default=600.0, show_default=True, help="Begin no load after this many s.")
@click.option("--minilm", type=click.Path(exists=True, path_type=Path), help="Saved classifier.")
@click.option("--against", type=click.Path(exists=True, path_type=Path), help="Earlier JSON.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(__file__).with_name("results"),
    help="Where table, JSON and plot go. [default: benchmarks/results]",
)
def main(
    names: tuple[str, ...],
    seconds: int,
    limit: float,
    minilm: Path | None,
    against: Path | None,
    out: Path,
) -> None:
    """Runs the suites and reports."""
    suites = all_suites(minilm)
    if unknown := [name for name in names if name not in suites]:
        raise click.BadParameter(f"no suite {unknown[0]!r}; there are {', '.join(suites)}")
    chosen = [suites[name] for name in names or suites]
    ends = time.monotonic() + limit
    rows: list[Row] = []
    total = sum(3 + sum(len(p.connections) for p in suite.payloads) for suite in chosen)
    with tqdm(total=total, unit="row", disable=None) as bar:
        for suite in chosen:
            bar.set_description(suite.name)
            for row in run_suite(suite, seconds, ends):
                rows.append(row)
                bar.update()
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "results.json", rows)
    text = table(rows, read_json(against) if against else [])
    (out / "results.md").write_text(text + "\n")
    plot(out / "results.png", rows)
    click.echo(f"{text}\n\n~: other programs used the processor meanwhile\nwritten to {out}")


if __name__ == "__main__":
    main()
