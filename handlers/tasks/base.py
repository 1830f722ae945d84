"""What every task offers to the transformer handler."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from marserve.archiver.handler_options import HandlerOptions
from marserve.handlers import pretrained, rows
from marserve.handlers.explain import Explainer
from marserve.handlers.media import MediaBatch
from marserve.handlers.runners.base import INPUT_NAMES, Runner
from marserve.handlers.tokens import Encoder, TokenBatch

Item = dict[str, Any]
BatchT = TypeVar("BatchT", TokenBatch, MediaBatch)


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """What a task knows of its model.

    Args:
        tokenizer: What the task's ``load_tokenizer`` returned.
        config: The model's transformers config.
        labels: Names of the classes, in the order of their indices; empty for other tasks.
        max_length: Longest input in tokens.
        top_k: Number of classes in an answer; None for the best one alone.
        generation: Defaults of text generation.
        options: The whole ``handler`` section.
        directory: The unpacked archive.
        limit_pixels: Whether images may not be larger than Pillow's limit.
    """

    tokenizer: Any
    config: Any
    labels: list[str]
    max_length: int
    top_k: int | None = None
    generation: Mapping[str, Any] = field(default_factory=dict)
    options: HandlerOptions = field(default_factory=HandlerOptions)
    directory: Path = Path()
    limit_pixels: bool = True


class Task(ABC, Generic[BatchT]):
    """Parses requests, encodes them, and turns outputs into answers.

    It never sees device, dtype or mode of execution. One item may be several rows of its batch.

    Args:
        settings: What it knows of the model.
        input_names: Inputs that the runner takes.
    """

    auto_class: ClassVar[str]
    output_names: ClassVar[tuple[str, ...]] = ("logits",)
    input_names: ClassVar[tuple[str, ...]] = INPUT_NAMES  # those that the task has to offer
    spare_weights: ClassVar[tuple[str, ...]] = ()  # names that may be missing begin so
    labelled: ClassVar[bool] = True  # whether the classes need names
    per_token: ClassVar[bool] = False  # whether outputs have values for every token
    decodes: ClassVar[bool] = False  # whether text is generated
    explains: ClassVar[bool] = True  # whether there is a score that words can be credited with

    def __init__(self, settings: TaskSettings, input_names: tuple[str, ...]) -> None:
        self.settings = settings

    @classmethod
    def fitting(cls, config: Any) -> type[Task[BatchT]]:
        """Returns the form of the task that models of a config have."""
        return cls

    @classmethod
    def load_tokenizer(cls, directory: Path, options: HandlerOptions) -> Any:
        """Loads the archive's tokenizer, or returns None if the task needs none.

        Raises:
            HandlerLoadError: If it is needed, and missing or damaged.
        """
        return pretrained.load_tokenizer(directory, options.do_lower_case)

    def read(self, row: Any) -> Any:
        """Returns what a request carries.

        Raises:
            RequestError: If it is nothing that the task could read.
        """
        return rows.read_value(row)

    @abstractmethod
    def parse(self, value: Any) -> Item:
        """Returns the fields of one request, checked.

        Args:
            value: As ``read`` returned it.

        Raises:
            RequestError: If something is missing or wrong.
        """

    def check_target(self, item: Item) -> Item:
        """Returns the fields of a request whose answer is to be explained, ``target`` checked.

        Raises:
            RequestError: If the target is not one that the model has.
        """
        return item

    @abstractmethod
    def encode(self, items: list[Item], offsets: bool = False) -> BatchT:
        """Returns what the model reads of parsed requests.

        Args:
            items: At least one.
            offsets: Whether the place of each token in its text is wanted.
        """

    def run(self, runner: Runner, batch: BatchT, items: list[Item]) -> Any:
        """Runs the model on a batch; what it returns goes to ``answers``."""
        return runner(batch.to(runner.device).inputs)

    @abstractmethod
    def answers(self, outputs: Any, batch: BatchT, items: list[Item]) -> list[Any]:
        """Returns one answer an item, or an exception in its place."""

    def explain(self, explainer: Explainer, batch: BatchT, items: list[Item]) -> list[Any]:
        """Returns one explanation an item, or an exception in its place; asked if ``explains``.

        Args:
            explainer: Credits tokens with a score.
            batch: The items' tokens, with their places in the texts.
            items: After ``check_target``.
        """
        raise NotImplementedError(type(self).__name__)


class TextTask(Task[TokenBatch]):
    """A task whose requests are texts."""

    def __init__(self, settings: TaskSettings, input_names: tuple[str, ...]) -> None:
        super().__init__(settings, input_names)
        self.encoder = Encoder(settings.tokenizer, settings.max_length, input_names)

    def parse(self, value: Any) -> Item:
        """Returns the text under ``text``, and the other fields as they are."""
        if isinstance(value, str):
            return {"text": rows.check_text(value)}
        text = rows.text_field(value, "text", '{"text": "..."} or the text itself')
        return {**value, "text": text}

    def encode(self, items: list[Item], offsets: bool = False) -> TokenBatch:
        """Returns the tokens of parsed requests."""
        return self.encoder([item["text"] for item in items], offsets)


def row_index(values: list[int], device: torch.device) -> Tensor:
    """Returns ``[rows] int64`` on a device."""
    return torch.tensor(values, dtype=torch.int64, device=device)
