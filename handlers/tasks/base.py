"""What every task offers to the transformer handler."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from marserve.handlers import rows
from marserve.handlers.explain import Explainer
from marserve.handlers.runners.base import Runner
from marserve.handlers.tokens import Encoder, TokenBatch

Item = dict[str, Any]


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """What a task knows of its model.

    Args:
        tokenizer: A transformers tokenizer with a fast backend.
        config: The model's transformers config.
        labels: Names of the classes, in the order of their indices; empty for other tasks.
        max_length: Longest input in tokens.
        top_k: Number of classes in an answer; None for the best one alone.
        generation: Defaults of text generation.
    """

    tokenizer: Any
    config: Any
    labels: list[str]
    max_length: int
    top_k: int | None = None
    generation: Mapping[str, Any] = field(default_factory=dict)


class Task(ABC):
    """Parses requests, encodes them, and turns outputs into answers.

    It never sees device, dtype or mode of execution.

    Args:
        settings: What it knows of the model.
        input_names: Inputs that the runner takes.
    """

    auto_class: ClassVar[str]
    output_names: ClassVar[tuple[str, ...]] = ("logits",)
    labelled: ClassVar[bool] = True  # whether the classes need names
    per_token: ClassVar[bool] = False  # whether outputs have values for every token
    decodes: ClassVar[bool] = False  # whether text is generated

    def __init__(self, settings: TaskSettings, input_names: tuple[str, ...]) -> None:
        self.settings = settings
        self.encoder = Encoder(settings.tokenizer, settings.max_length, input_names)

    def parse(self, value: str | dict[str, Any]) -> Item:
        """Returns the fields of one request, checked.

        Raises:
            RequestError: If something is missing or wrong.
        """
        if isinstance(value, str):
            return {"text": rows.check_text(value)}
        text = rows.text_field(value, "text", '{"text": "..."} or the text itself')
        return {**value, "text": text}

    def check_target(self, item: Item) -> Item:
        """Returns the fields of a request whose answer is to be explained, ``target`` checked.

        Raises:
            RequestError: If the target is not one that the model has.
        """
        return item

    def encode(self, items: list[Item]) -> TokenBatch:
        """Returns the tokens of parsed requests."""
        return self.encoder([item["text"] for item in items])

    def run(self, runner: Runner, batch: TokenBatch, items: list[Item]) -> Any:
        """Runs the model on a batch; what it returns goes to ``answers``."""
        return runner(batch.to(runner.device).inputs)

    @abstractmethod
    def answers(self, outputs: Any, batch: TokenBatch, items: list[Item]) -> list[Any]:
        """Returns one answer a row, or an exception in its place."""

    @abstractmethod
    def explain(self, explainer: Explainer, batch: TokenBatch, items: list[Item]) -> list[Any]:
        """Returns one explanation a row, or an exception in its place."""


def row_index(values: list[int], device: torch.device) -> Tensor:
    """Returns ``[rows] int64`` on a device."""
    return torch.tensor(values, dtype=torch.int64, device=device)
