"""What tasks have in common whose model reads with an encoder and writes with a decoder."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from marserve.archiver.errors import HandlerLoadError
from marserve.handlers.errors import RequestError
from marserve.handlers.generation.loop import generate
from marserve.handlers.generation.sampling import PARAMETERS, SamplingParams, read_params
from marserve.handlers.pretrained import load_generation_config
from marserve.handlers.rows import check_keys
from marserve.handlers.runners.base import INPUT_NAMES, Runner
from marserve.handlers.tasks.base import Item, TaskSettings, TextTask
from marserve.handlers.tokens import TokenBatch

_MAX_NEW_TOKENS = 128


class TextToText(TextTask):
    """Answers with the text that the decoder writes, the likeliest token each time.

    Each request may bring its own parameters beside ``text``: ``max_new_tokens``, ``do_sample``,
    ``temperature``, ``top_p``, ``top_k``, ``seed``.
    """

    auto_class = "AutoModelForSeq2SeqLM"
    input_names = (*INPUT_NAMES[:2], "decoder_input_ids")
    labelled = False
    per_token = True
    decodes = True
    explains = False
    name = "summarization"  # where models keep the prefix of the task in their config

    def __init__(self, settings: TaskSettings, input_names: tuple[str, ...]) -> None:
        super().__init__(settings, input_names)
        written = load_generation_config(settings.directory, settings.config)
        self._prefix = self._find_prefix()
        self._prompt = start_id(settings, written)
        self._first = _one(written.forced_bos_token_id)
        self._end_ids = end_ids(settings, written)
        self._default = default_params(settings, _MAX_NEW_TOKENS)

    def parse(self, value: Any) -> Item:
        """Returns the text, its prefix before it, and the parameters."""
        item = super().parse(value)
        check_keys(item, ("text", *PARAMETERS))
        given = {name: item[name] for name in PARAMETERS if name in item}
        return {"text": self._prefix + item["text"], "params": read_params(given, self._default)}

    def run(self, runner: Runner, batch: TokenBatch, items: list[Item]) -> list[list[int]]:
        """Returns the tokens that were written for each row."""
        prompts = [[self._prompt, *self._first]] * len(items)
        inputs = {
            **batch.to(runner.device).inputs,
            "decoder_input_ids": torch.tensor(prompts, device=runner.device),
        }
        params = [item["params"] for item in items]
        return generate(runner.decoder(), inputs, params, self._end_ids)

    def answers(self, outputs: Any, batch: TokenBatch, items: list[Item]) -> list[Any]:
        """Returns the text that was written, an item."""
        texts: list[Any] = self.settings.tokenizer.batch_decode(outputs, skip_special_tokens=True)
        return texts

    def _find_prefix(self) -> str:
        given = self.settings.options.prefix
        if given is not None:
            return given
        known = getattr(self.settings.config, "task_specific_params", None) or {}
        return str((known.get(self.name) or {}).get("prefix") or "")


def default_params(settings: TaskSettings, max_new_tokens: int) -> SamplingParams:
    """Returns the parameters of a request that brings none; nothing is drawn unless asked for.

    Raises:
        HandlerLoadError: If ``handler.generation`` is wrong.
    """
    try:
        default = SamplingParams(max_new_tokens=max_new_tokens, do_sample=False)
        return read_params(settings.generation, default)
    except RequestError as error:
        raise HandlerLoadError(f"model-config.yaml: $.handler.generation: {error}") from None


def start_id(settings: TaskSettings, written: Any) -> int:
    """Returns the token that a decoder starts with.

    Args:
        settings: Config and tokenizer.
        written: The model's generation config.

    Raises:
        HandlerLoadError: If nothing says which.
    """
    places = (written.decoder_start_token_id, settings.config.decoder_start_token_id)
    for found in (*places, written.bos_token_id, settings.config.pad_token_id):
        if found is not None:
            return int(found)
    raise HandlerLoadError("config.json: no decoder_start_token_id, which decoders start with")


def end_ids(settings: TaskSettings, written: Any) -> frozenset[int]:
    """Returns the tokens that end what a decoder writes."""
    places = (written.eos_token_id, settings.config.eos_token_id, settings.tokenizer.eos_token_id)
    return frozenset(number for place in places for number in _one(place))


def ban(logits: Tensor, tokens: list[int]) -> Tensor:
    """Returns logits with which some tokens are never chosen."""
    if not tokens:
        return logits
    return logits.index_fill(1, torch.tensor(tokens, device=logits.device), -torch.inf)


def _one(value: Any) -> list[int]:
    """Configs have one number, a list of them, or nothing."""
    return [] if value is None else list(value) if isinstance(value, (list, tuple)) else [value]
