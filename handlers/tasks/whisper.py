"""Speech recognition by models of Whisper's kind, which hear half a minute and write it down."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from marserve.handlers.errors import RequestError
from marserve.handlers.generation.loop import generate
from marserve.handlers.generation.sampling import PARAMETERS, read_params
from marserve.handlers.media import MediaBatch
from marserve.handlers.pretrained import load_generation_config
from marserve.handlers.runners.base import Decoder, Inputs, Runner
from marserve.handlers.tasks.base import Item, TaskSettings
from marserve.handlers.tasks.encoder_decoder import ban, default_params, end_ids, start_id
from marserve.handlers.tasks.speech_recognition import Speech

_SPOKEN = ("transcribe", "translate")


class WhisperSpeech(Speech):
    """Answers with ``{"text": ...}``. A longer recording is cut into parts of half a minute.

    A request may bring ``language`` (such as ``en``; found out otherwise), ``task`` (``transcribe``
    or ``translate``, which is to English) and the parameters of generation.
    """

    auto_class = "AutoModelForSpeechSeq2Seq"
    input_names = ("input_features", "decoder_input_ids")
    decodes = True

    def __init__(self, settings: TaskSettings, input_names: tuple[str, ...]) -> None:
        super().__init__(settings, input_names)
        self._written = load_generation_config(settings.directory, settings.config)
        self._start = start_id(settings, self._written)
        self._languages: dict[str, int] = getattr(self._written, "lang_to_id", None) or {}
        self._tasks: dict[str, int] = getattr(self._written, "task_to_id", None) or {}
        self._end_ids = end_ids(settings, self._written)
        longest = int(settings.config.max_target_positions)
        self._longest = longest - 4  # start, language, task, no timestamps
        self._default = default_params(settings, self._longest)

    def parse(self, value: Any) -> Item:
        """Returns ``parts``, each ``[features, frames] float32``, and the parameters."""
        samples = self.samples(value)
        given = {name: value[name] for name in PARAMETERS if value.get(name) is not None}
        language, task = value.get("language"), value.get("task", _SPOKEN[0])
        if language is not None and f"<|{language}|>" not in self._languages:
            known = ", ".join(sorted(name.strip("<|>") for name in self._languages)[:100])
            raise RequestError(
                f'"language" is {language!r:.80}; expected {"one of " + known if known else "none"}'
            )
        if task not in _SPOKEN:
            raise RequestError(f'"task" is {task!r:.80}; expected one of {", ".join(_SPOKEN)}')
        params = read_params(given, self._default)
        limit = min(params.max_new_tokens, self._longest)
        size = int(self.processor.n_samples)
        return {
            "parts": [
                self.features(samples[at : at + size], "input_features")
                for at in range(0, len(samples), size)
            ],
            "language": language,
            "task": task,
            "params": replace(params, max_new_tokens=limit),
        }

    def encode(self, items: list[Item], offsets: bool = False) -> MediaBatch:
        """Returns the parts of all recordings; a row each."""
        parts = [part for item in items for part in item["parts"]]
        return MediaBatch({"input_features": torch.stack(parts)})

    def run(self, runner: Runner, batch: MediaBatch, items: list[Item]) -> list[list[int]]:
        """Returns the tokens that were written for each row."""
        inputs = batch.to(runner.device).inputs
        rows = [item for item in items for _ in item["parts"]]
        languages = self._find_languages(runner, inputs, rows)
        prompts = [
            self._prompt(language, row["task"])
            for language, row in zip(languages, rows, strict=True)
        ]
        inputs = {**inputs, "decoder_input_ids": torch.tensor(prompts, device=runner.device)}
        decoder = _Choosy(
            runner.decoder(),
            always=self._written.suppress_tokens or [],
            first=self._written.begin_suppress_tokens or [],
        )
        return generate(decoder, inputs, [row["params"] for row in rows], self._end_ids)

    def answers(self, outputs: Any, batch: MediaBatch, items: list[Item]) -> list[Any]:
        """Returns an object with the text, a recording."""
        texts = iter(self.settings.tokenizer.batch_decode(outputs, skip_special_tokens=True))
        parts = [[next(texts) for _ in item["parts"]] for item in items]
        return [{"text": "".join(part)} for part in parts]

    def _prompt(self, language: int | None, task: str) -> list[int]:
        prompt = [self._start]
        if language is not None:
            prompt.append(language)
            prompt += [self._tasks[task]] if task in self._tasks else []
        silent = getattr(self._written, "no_timestamps_token_id", None)
        return prompt if silent is None else [*prompt, silent]

    def _find_languages(
        self, runner: Runner, inputs: Inputs, rows: list[Item]
    ) -> Sequence[int | None]:
        """The decoder's first word is the language, where a request does not name it."""
        named = [self._languages.get(f"<|{row['language']}|>") for row in rows]
        if not self._languages or all(each is not None for each in named):
            return named
        start = torch.full((len(rows), 1), self._start, device=runner.device)
        logits = runner.decoder().start({**inputs, "decoder_input_ids": start})
        known = torch.tensor(list(self._languages.values()), device=logits.device)
        heard = known[logits[:, known].argmax(-1)].tolist()
        return [heard[row] if each is None else each for row, each in enumerate(named)]


class _Choosy:
    """A decoder that never says some tokens, and others not at the beginning."""

    def __init__(self, decoder: Decoder, always: Collection[int], first: Collection[int]) -> None:
        self._decoder = decoder
        self._always = list(always)
        self._first = list(first)

    def start(self, inputs: Inputs) -> Tensor:
        return ban(self._decoder.start(inputs), [*self._always, *self._first])

    def step(self, tokens: Tensor) -> Tensor:
        return ban(self._decoder.step(tokens), self._always)

    def keep(self, rows: Tensor) -> None:
        self._decoder.keep(rows)
