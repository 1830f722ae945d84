"""TorchScript written: the model is traced once, its weights frozen into the trace."""

from __future__ import annotations

from pathlib import Path

import torch

from marserve.handlers.export.subject import Subject, quiet

FILE_NAME = "traced_model.pt"


def write(subject: Subject, directory: Path) -> list[Path]:
    """Writes the trace, which takes any batch size and length; returns its path."""
    path = directory / FILE_NAME
    with quiet(), torch.no_grad():
        traced = torch.jit.trace(
            subject.forward(), example_kwarg_inputs=subject.example(), check_trace=False
        )
        torch.jit.save(torch.jit.freeze(traced), path)
    return [path]
