"""Speech recognition: what is said in a recording, by models that label every moment (CTC)."""

from __future__ import annotations

import inspect
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from marserve.archiver.errors import HandlerLoadError
from marserve.archiver.handler_options import HandlerOptions
from marserve.handlers import pretrained
from marserve.handlers.audio import Samples, read_samples, read_wav, resample
from marserve.handlers.errors import RequestError
from marserve.handlers.media import MediaBatch, read_media
from marserve.handlers.runners.base import Runner
from marserve.handlers.tasks.base import Item, Task, TaskSettings

_SHORTEST_S = 0.05  # less than that gives the first convolutions nothing to work on


class Speech(Task[MediaBatch]):
    """What tasks of speech have in common: a WAV file, or samples and their rate, in each request.

    Args:
        settings: What it knows of the model.
        input_names: Inputs that the runner takes.
    """

    labelled = False
    explains = False

    def __init__(self, settings: TaskSettings, input_names: tuple[str, ...]) -> None:
        super().__init__(settings, input_names)
        self.processor = _load_processor(settings.directory)

    @classmethod
    def load_tokenizer(cls, directory: Path, options: HandlerOptions) -> Any:
        """Loads what turns numbers of tokens into text; it reads no text, so it may be slow."""
        return pretrained.load_tokenizer(directory, options.do_lower_case, fast=False)

    def read(self, row: Any) -> Any:
        """Returns the recording and what else the request holds."""
        if isinstance(row, dict):
            body = row.get("data") if row.get("data") is not None else row.get("body", row)
            if isinstance(body, dict) and "array" in body:
                return {**body, "audio": body["array"]}
        return read_media(row, "audio")

    def samples(self, value: dict[str, Any]) -> Samples:
        """Returns the recording at the model's own rate: ``[samples] float32``."""
        audio = value["audio"]
        if isinstance(audio, bytes):
            samples, rate = read_wav(audio)
        elif isinstance(audio, (list, tuple)):
            samples, rate = read_samples(audio, value.get("sampling_rate"))
        else:
            raise RequestError(
                '"audio" is neither a WAV file nor its base64; samples are sent as'
                ' {"array": [...], "sampling_rate": 16000}'
            )
        target = int(self.processor.sampling_rate)
        if len(samples) < _SHORTEST_S * rate:
            raise RequestError(f"the recording is shorter than {_SHORTEST_S} seconds")
        return resample(samples, rate, target)

    def features(self, samples: Samples, name: str) -> Tensor:
        """Returns one input of the model, without a dimension for the row."""
        rate = self.processor.sampling_rate
        prepared: Tensor = self.processor(samples, sampling_rate=rate, return_tensors="pt")[name][0]
        return prepared


class ConnectionistSpeech(Speech):
    """Answers with ``{"text": ...}``: the label of each moment, repetitions and gaps taken out.

    Recordings of different lengths run one after the other: padding would change what such models
    hear.
    """

    auto_class = "AutoModelForCTC"
    input_names = ("input_values",)

    @classmethod
    def fitting(cls, config: Any) -> type[Task[MediaBatch]]:
        """Returns the task of Whisper's kind for models that write with a decoder."""
        if not getattr(config, "is_encoder_decoder", False):
            return cls
        from marserve.handlers.tasks.whisper import WhisperSpeech

        return WhisperSpeech

    def parse(self, value: Any) -> Item:
        """Returns ``values: [samples] float32`` as the model hears them."""
        return {"values": self.features(self.samples(value), "input_values")}

    def encode(self, items: list[Item], offsets: bool = False) -> MediaBatch:
        """Returns all recordings, padded with silence."""
        rows = [item["values"] for item in items]
        padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
        return MediaBatch({"input_values": padded})

    def run(self, runner: Runner, batch: MediaBatch, items: list[Item]) -> list[list[int]]:
        """Returns the likeliest label of each moment, a row."""
        values = batch.to(runner.device).inputs["input_values"]
        alike: dict[int, list[int]] = defaultdict(list)
        for row, item in enumerate(items):
            alike[len(item["values"])].append(row)
        labels: list[list[int]] = [[] for _ in items]
        for length, rows in alike.items():
            logits = runner({"input_values": values[rows, :length]})["logits"]
            for row, found in zip(rows, logits.argmax(-1).tolist(), strict=True):
                labels[row] = found
        return labels

    def answers(self, outputs: Any, batch: MediaBatch, items: list[Item]) -> list[Any]:
        """Returns an object with the text, a recording."""
        decode = self.settings.tokenizer.decode
        known = inspect.signature(decode).parameters
        more = {"skip_special_tokens": False} if "skip_special_tokens" in known else {}
        return [{"text": decode(labels, **more)} for labels in outputs]


def _load_processor(directory: Path) -> Any:
    from transformers import AutoFeatureExtractor

    try:
        return AutoFeatureExtractor.from_pretrained(directory, local_files_only=True)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise HandlerLoadError(
            "the archive has no usable preprocessor_config.json, which says what happens to sound"
            f" before the model; save it with feature_extractor.save_pretrained: {error}"
        ) from error


TASK = ConnectionistSpeech
