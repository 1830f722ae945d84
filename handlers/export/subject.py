"""What is exported: a loaded model as a function of plain tensors, with its dynamic dimensions."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from marserve.handlers.runners.base import Inputs, probe
from marserve.handlers.runners.eager import EagerRunner
from marserve.handlers.runners.first_token import narrowed

_ROWS, _TOKENS = 2, 16  # of the example; one row or token would be taken for a constant
_MANY = 1 << 16
_GROWING = ("input_ids", "attention_mask", "token_type_ids", "input_values")


@dataclass(frozen=True, slots=True)
class Subject:
    """A model to export.

    Args:
        runner: Runs the model eagerly.
        input_names: What the program takes, in this order.
        output_names: What it returns, in this order.
        longest: Most tokens of a row; None for no limit.
        quantization: What the weights are brought to, as in ``handler.quantization``, or None.
        samples: Padded inputs, on which quantisation measures what it must spare.
        drafts: Directory where an exporter leaves what every precision of this model begins with,
            and finds it; None to make it anew.
    """

    runner: EagerRunner
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    longest: int | None = None
    quantization: str | None = None
    samples: tuple[Inputs, ...] = ()
    drafts: Path | None = None

    def forward(self) -> Forward:
        """Returns the model as a module of plain tensors."""
        return Forward(self)

    def example(self) -> Inputs:
        """Returns inputs of one shape, some of it padding; what they say is of no matter."""
        inputs = probe(_ROWS, min(_TOKENS, self.longest or _TOKENS), self.runner)
        if "attention_mask" in inputs:
            inputs["attention_mask"][1, -4:] = 0
        return {name: inputs[name] for name in self.input_names}

    def dynamic_shapes(self) -> dict[str, dict[int, Any]]:
        """Returns the dimensions that may have any size, for ``torch.export``."""
        rows = torch.export.Dim("rows", min=1, max=_MANY)
        tokens: Any = torch.export.Dim("tokens", min=1, max=self.longest or _MANY)
        if "input_values" in self.input_names:
            tokens = torch.export.Dim.AUTO  # the convolutions say how short a recording may be
        return {
            name: {0: rows, 1: tokens} if name in _GROWING else {0: rows}
            for name in self.input_names
        }


class Forward(nn.Module):
    """A transformers model that takes tensors by position or name and returns a tuple of tensors.

    Args:
        subject: The model, and the names of its inputs and outputs.
    """

    def __init__(self, subject: Subject) -> None:
        super().__init__()
        self.model = narrowed(subject.runner.module)
        self._input_names = subject.input_names
        self._output_names = subject.output_names
        config: Any = self.model.config
        # A cache of keys and values would be one more output, and programs have no use for it.
        self._more = {"use_cache": False} if getattr(config, "use_cache", False) else {}
        self.eval()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        pixel_values: Tensor | None = None,
        input_values: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        """Runs one padded batch; the names are written out so that programs keep them."""
        given = {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "token_type_ids": token_type_ids,
            "pixel_values": pixel_values,
            "input_values": input_values,
        }
        inputs = {name: given[name] for name in self._input_names}
        outputs = self.model(**inputs, **self._more)
        return tuple(outputs[name] for name in self._output_names)


def export_graph(subject: Subject) -> torch.export.ExportedProgram:
    """Returns the model's operators as a graph, for any batch size and length.

    Its inputs are keyword arguments: so their names can be found in whatever is made of it.
    """
    with quiet(), torch.no_grad():
        return torch.export.export(
            subject.forward(),
            (),
            kwargs=subject.example(),
            dynamic_shapes=subject.dynamic_shapes(),
        )


@contextmanager
def quiet() -> Iterator[None]:
    """Keeps back what exporters say of each branch they freeze and each package they miss."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
