"""The report as a picture: speed and memory of every mode beside eager."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from marserve.archiver.errors import ArchiveError
from marserve.handlers.optimize.candidates import BASELINE
from marserve.handlers.optimize.report import Report


def check_plotting() -> None:
    """Refuses before anything is measured.

    Raises:
        ArchiveError: If matplotlib is not installed.
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ArchiveError(
            "--plot needs matplotlib, which is not installed: pip install marserve[plot]"
        ) from error


def plot(report: Report, path: Path) -> None:
    """Draws for each mode how many times as fast as eager it is, and what memory it takes."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    shown = {name: result for name, result in report.results.items() if result.timings}
    cells = list(report.results[BASELINE].timings)
    size = (10, 1.5 + 0.25 * len(shown) * max(len(cells), 1))
    figure, (speed, memory) = plt.subplots(
        1, 2, figsize=size, width_ratios=[3, 1], sharey=True, layout="constrained"
    )
    _draw_speed(speed, report, cells, list(shown))
    memory.barh(range(len(shown)), [result.memory_mb or 0 for result in shown.values()])
    memory.set(title="resident memory, MB")
    figure.savefig(path, dpi=120, format="png")
    plt.close(figure)


def _draw_speed(axis: Any, report: Report, cells: list[str], modes: list[str]) -> None:
    height = 0.8 / max(len(cells), 1)
    eager = report.results[BASELINE].timings
    for at, cell in enumerate(cells):
        places = [place + (at - (len(cells) - 1) / 2) * height for place in range(len(modes))]
        timings = [report.results[mode].timings[cell] for mode in modes]
        ratios = [timing.rows_per_s / eager[cell].rows_per_s for timing in timings]
        axis.barh(places, ratios, height, label=cell)
    failed = {mode for mode in modes if report.results[mode].state != "ok"}
    labels = [f"{mode} (failed)" if mode in failed else mode for mode in modes]
    axis.set_yticks(range(len(modes)), labels)
    axis.invert_yaxis()
    axis.axvline(1, color="black", linewidth=0.8)
    axis.set(title=f"{report.archive}: times eager's speed at the median")
    axis.legend(title="rows x tokens")
