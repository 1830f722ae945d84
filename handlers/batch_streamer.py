"""Streams the text of several sequences that are generated together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor
from transformers.generation.streamers import BaseStreamer, TextIteratorStreamer


class TextIteratorStreamerBatch(BaseStreamer):
    """A streamer for ``generate`` on a batch; iterating yields one list of new texts a step.

    Args:
        tokenizer: Decodes the tokens.
        batch_size: Sequences that are generated together.
        skip_prompt: Whether the prompts are left out.
        timeout: Longest wait for the next text, in seconds; None for ever.
        decode_kwargs: For the tokenizer's ``decode``.
    """

    def __init__(
        self,
        tokenizer: Any,
        batch_size: int,
        skip_prompt: bool = False,
        timeout: float | None = None,
        **decode_kwargs: Any,
    ) -> None:
        self.batch_size = batch_size
        self.streamers = [
            TextIteratorStreamer(tokenizer, skip_prompt, timeout, **decode_kwargs)
            for _ in range(batch_size)
        ]

    def put(self, value: Tensor) -> None:
        """Takes the prompts, ``[batch, tokens]``, or the next token of each, ``[batch]``.

        Raises:
            ValueError: If the number of sequences is not ``batch_size``.
        """
        if len(value) != self.batch_size:
            raise ValueError(f"expected {self.batch_size} sequences, got {len(value)}")
        for streamer, tokens in zip(self.streamers, value, strict=True):
            streamer.put(tokens.reshape(-1))

    def end(self) -> None:
        """Sends what is left of every sequence."""
        for streamer in self.streamers:
            streamer.end()

    def __iter__(self) -> Iterator[list[str]]:
        running = {index: iter(streamer) for index, streamer in enumerate(self.streamers)}
        while running:
            texts = [""] * self.batch_size
            for index, texts_of_one in list(running.items()):
                try:
                    texts[index] = next(texts_of_one)
                except StopIteration:
                    del running[index]
            if running:
                yield texts
