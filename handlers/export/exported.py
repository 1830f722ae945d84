"""Programs of ``torch.export`` written: the model's operators as a graph, and its weights."""

from __future__ import annotations

from pathlib import Path

import torch

from marserve.handlers.export.subject import Subject, export_graph

FILE_NAME = "model.pt2"


def write(subject: Subject, directory: Path) -> list[Path]:
    """Writes the program; returns its path."""
    path = directory / FILE_NAME
    torch.export.save(export_graph(subject), path)
    return [path]
