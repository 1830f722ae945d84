"""Text generation: a prompt and what a causal language model says next."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from marserve.archiver.errors import HandlerLoadError
from marserve.handlers.errors import RequestError
from marserve.handlers.explain import Explainer
from marserve.handlers.explain_words import with_words
from marserve.handlers.generation.loop import generate
from marserve.handlers.generation.sampling import PARAMETERS, SamplingParams, read_params
from marserve.handlers.pretrained import context_length
from marserve.handlers.rows import check_keys
from marserve.handlers.runners.base import Runner
from marserve.handlers.runners.decoding import positions, to_left
from marserve.handlers.tasks.base import Item, TaskSettings, TextTask, row_index
from marserve.handlers.tokens import Encoder, TokenBatch


class TextGeneration(TextTask):
    """Answers with the prompt and its continuation.

    Each request may bring its own parameters beside ``text``: ``max_new_tokens``, ``temperature``,
    ``top_p``, ``top_k``, ``do_sample``, ``seed``.
    """

    auto_class = "AutoModelForCausalLM"
    labelled = False
    per_token = True
    decodes = True

    def __init__(self, settings: TaskSettings, input_names: tuple[str, ...]) -> None:
        super().__init__(settings, input_names)
        self._context = context_length(settings.config)
        longest = settings.max_length
        if self._context is not None:
            longest = min(longest, self._context - 1)  # room for one new token at least
        self.encoder = Encoder(settings.tokenizer, longest, ("input_ids", "attention_mask"))
        self._needs_text = not settings.tokenizer.num_special_tokens_to_add()
        self._end_ids = _end_ids(settings)
        try:
            default = SamplingParams(max_new_tokens=settings.max_length)
            self._default = read_params(settings.generation, default)
        except RequestError as error:
            raise HandlerLoadError(f"model-config.yaml: $.handler.generation: {error}") from None

    def parse(self, value: Any) -> Item:
        """Returns the prompt and its parameters."""
        item = super().parse(value)
        check_keys(item, ("text", "target", *PARAMETERS))
        if self._needs_text and not item["text"]:
            raise RequestError("the text is empty; generation needs something to continue")
        given = {name: item[name] for name in PARAMETERS if name in item}
        params = read_params(given, self._default)
        return {"text": item["text"], "target": item.get("target"), "params": params}

    def run(self, runner: Runner, batch: TokenBatch, items: list[Item]) -> list[list[int]]:
        """Returns the new tokens of each row."""
        params = [
            self._limited(item["params"], len(batch.kept(row))) for row, item in enumerate(items)
        ]
        return generate(runner.decoder(), batch.to(runner.device).inputs, params, self._end_ids)

    def answers(self, outputs: Any, batch: TokenBatch, items: list[Item]) -> list[Any]:
        """Returns the text a row, its prompt included."""
        prompts = [
            [batch.encodings[row].ids[at] for at in batch.kept(row)] for row in range(len(items))
        ]
        texts: list[Any] = self.settings.tokenizer.batch_decode(
            [prompt + new for prompt, new in zip(prompts, outputs, strict=True)],
            skip_special_tokens=True,
        )
        return texts

    def check_target(self, item: Item) -> Item:
        """Brings ``target`` to the id of a token, or None for the model's own next token."""
        target = item["target"]
        if isinstance(target, str):
            ids = self.settings.tokenizer.encode(target, add_special_tokens=False)
            target = ids[0] if ids else None
        size = self.settings.config.vocab_size
        whole = isinstance(target, int) and not isinstance(target, bool)
        if target is not None and not (whole and 0 <= target < size):
            raise RequestError(
                f'"target" is {item["target"]!r:.80}; expected the id of a token, 0 to {size - 1},'
                " or the text that should come next"
            )
        return {**item, "target": target}

    def explain(self, explainer: Explainer, batch: TokenBatch, items: list[Item]) -> list[Any]:
        """Returns words, importances and delta for the next token, and that token, a row."""
        inputs, baseline, at = self._explained(explainer, batch)
        rows = torch.arange(len(items), device=at.device)
        logits = explainer.outputs(inputs)["logits"]
        likeliest = logits[rows, at].argmax(-1).tolist()
        targets = [
            likeliest[row] if item["target"] is None else item["target"]
            for row, item in enumerate(items)
        ]
        last_only = explainer.pads_left and explainer.takes("logits_to_keep")
        attribution = explainer.attribute(
            inputs,
            baseline,
            _pick,
            torch.zeros_like(at) if last_only else at,
            row_index(targets, explainer.device),
            **({"logits_to_keep": 1} if last_only else {}),
        )
        tokens = self.settings.tokenizer.convert_ids_to_tokens(targets)
        shown = inputs["attention_mask"].cpu()
        answers = [
            {
                "words": batch.tokens(row),
                "importances": attribution.importances(row, shown),
                "delta": attribution.delta[row].item(),
                "target": tokens[row],
            }
            for row in range(len(items))
        ]
        return [with_words(answer, batch, row) for row, answer in enumerate(answers)]

    def _explained(
        self, explainer: Explainer, batch: TokenBatch
    ) -> tuple[dict[str, Tensor], Tensor, Tensor]:
        """Inputs, baseline, and the column of each row's last token."""
        ids, mask = batch.inputs["input_ids"], batch.inputs["attention_mask"]
        baseline = explainer.baseline(batch)
        if not explainer.pads_left:
            return {"input_ids": ids, "attention_mask": mask}, baseline, mask.sum(1) - 1
        baseline, _ = to_left(baseline, mask)
        ids, mask = to_left(ids, mask)
        inputs = {"input_ids": ids, "attention_mask": mask}
        if explainer.takes("position_ids"):
            inputs["position_ids"] = positions(mask)
        return inputs, baseline, torch.full_like(mask[:, 0], ids.shape[1] - 1)

    def _limited(self, params: SamplingParams, prompt_tokens: int) -> SamplingParams:
        """A text ends where the model has no more positions, whatever was asked for."""
        if self._context is None:
            return params
        room = self._context - prompt_tokens
        return replace(params, max_new_tokens=min(params.max_new_tokens, room))


def _pick(outputs: Any, at: Tensor, token: Tensor) -> Tensor:
    logits: Tensor = outputs["logits"]
    return logits[torch.arange(len(at), device=at.device), at, token]


def _end_ids(settings: TaskSettings) -> frozenset[int]:
    """The tokens that end a text: the config's one or many, and the tokenizer's."""
    configured = getattr(settings.config, "eos_token_id", None)
    ids = configured if isinstance(configured, (list, tuple)) else [configured]
    return frozenset(i for i in (*ids, settings.tokenizer.eos_token_id) if i is not None)


TASK = TextGeneration
