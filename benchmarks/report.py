"""Results as JSON, as a markdown table and as a plot."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

DISTURBED_PERCENT = 12.0  # other programs above this share of one core: the row is marked


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement; a load, or one number of a suite (then `connections` is 0).

    Args:
        suite: Which deployment.
        payload: What was asked.
        connections: How many connections asked.
        values: Measured values by name, the unit at the end of the name.
        others_cpu_percent: Processor time of other programs meanwhile, percent of one core.
    """

    suite: str
    payload: str
    connections: int
    values: dict[str, float]
    others_cpu_percent: float = 0.0

    @property
    def key(self) -> str:
        """Identifies the row among those of another run."""
        return f"{self.suite}/{self.payload}/{self.connections}"


def machine() -> dict[str, Any]:
    """Returns what a number depends on besides the code."""
    cpus = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next((line.partition(":")[2].strip() for line in cpus if "model name" in line), "")
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
    )
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": model or platform.processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": version("torch"),
        "marserve": version("marserve"),
        "commit": commit.stdout.strip(),
    }


def write_json(path: Path, rows: list[Row]) -> None:
    """Writes machine and rows; `read_json` reads the rows again."""
    data = {"machine": machine(), "rows": [asdict(row) for row in rows]}
    path.write_text(json.dumps(data, indent=2) + "\n")


def read_json(path: Path) -> list[Row]:
    """Returns the rows of an earlier run."""
    return [Row(**row) for row in json.loads(path.read_text())["rows"]]


def table(rows: list[Row], against: list[Row]) -> str:
    """Returns markdown tables, with the ratio to an earlier run where that has the row."""
    earlier = {row.key: row.values for row in against}
    loads = ["| suite | payload | connections | requests/s | p50 ms | p99 ms |", "|---" * 6 + "|"]
    facts = ["| suite | | |", "|---" * 3 + "|"]
    for row in rows:
        before = earlier.get(row.key, {})
        cells = {name: _cell(value, before.get(name)) for name, value in row.values.items()}
        if row.connections:
            mark = "~" if row.others_cpu_percent > DISTURBED_PERCENT else ""
            shown = [mark + cells.get(name, "-") for name in ("rps", "p50_ms", "p99_ms")]
            shown[0] += f" ({cells['bad']} bad)" if "bad" in cells else ""
            head = [row.suite, row.payload, str(row.connections)]
            loads.append(f"| {' | '.join(head + shown)} |")
        else:
            name = next(iter(cells))
            facts.append(
                f"| {row.suite} | {row.payload}: {name.replace('_', ' ')} | {cells[name]} |"
            )
    return "\n".join([*loads, "", *facts])


def _cell(value: float, earlier: float | None) -> str:
    text = f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
    return f"{text} ({value / earlier:.2f}x)" if earlier else text


def plot(path: Path, rows: list[Row]) -> None:
    """Draws throughput and p99 over connections, one line a payload, one column a suite."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    loads = [row for row in rows if row.connections]
    suites = list(dict.fromkeys(row.suite for row in loads))
    if not suites:
        return
    size = (4 * len(suites), 7)
    figure, axes = plt.subplots(2, len(suites), figsize=size, squeeze=False, layout="constrained")
    for column, suite in enumerate(suites):
        mine = [row for row in loads if row.suite == suite]
        _draw(axes[0][column], mine, "rps", f"{suite}: requests a second")
        _draw(axes[1][column], mine, "p99_ms", f"{suite}: p99, ms")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _draw(axis: Any, rows: list[Row], value: str, title: str) -> None:
    for payload in dict.fromkeys(row.payload for row in rows):
        mine = [row for row in rows if row.payload == payload and value in row.values]
        points = sorted((row.connections, row.values[value]) for row in mine)
        if points:
            axis.plot(*zip(*points, strict=True), marker="o", label=payload)
    axis.set(title=title, xlabel="connections", xscale="log", yscale="log")
    ticks = sorted({row.connections for row in rows})
    axis.set_xticks(ticks, [str(tick) for tick in ticks])
    axis.minorticks_off()
    axis.grid(alpha=0.3)
    axis.legend()
