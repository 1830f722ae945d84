"""Image classification: what is to be seen in an image."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from marserve.archiver.errors import HandlerLoadError
from marserve.archiver.handler_options import HandlerOptions
from marserve.handlers.errors import RequestError
from marserve.handlers.images import open_image
from marserve.handlers.media import MediaBatch, read_media
from marserve.handlers.rows import whole_number
from marserve.handlers.tasks.base import Item, Task, TaskSettings

_TOP_K = 5


class ImageClassification(Task[MediaBatch]):
    """Answers with objects of label and score, best first. A request may bring its own ``top_k``.

    What happens to an image before the model is said by the archive's preprocessor_config.json.
    """

    auto_class = "AutoModelForImageClassification"
    input_names = ("pixel_values",)
    explains = False

    def __init__(self, settings: TaskSettings, input_names: tuple[str, ...]) -> None:
        super().__init__(settings, input_names)
        self._processor = _load_processor(settings.directory)

    @classmethod
    def load_tokenizer(cls, directory: Path, options: HandlerOptions) -> Any:
        """Returns None: there is no text."""
        return None

    def read(self, row: Any) -> Any:
        """Returns the image file and what else the request holds."""
        return read_media(row, "image")

    def parse(self, value: Any) -> Item:
        """Returns ``pixels: [channels, height, width] float32`` and the number of answers."""
        from PIL import ImageOps

        file = value["image"]
        if not isinstance(file, bytes):
            raise RequestError('"image" is neither the bytes of an image nor their base64')
        image = open_image(file, self.settings.limit_pixels)
        upright = ImageOps.exif_transpose(image).convert("RGB")
        pixels = self._processor(images=upright, return_tensors="pt")["pixel_values"][0]
        return {
            "pixels": pixels,
            "top_k": whole_number(value, "top_k", self.settings.top_k or _TOP_K),
        }

    def encode(self, items: list[Item], offsets: bool = False) -> MediaBatch:
        """Returns the pixels of all images."""
        return MediaBatch({"pixel_values": torch.stack([item["pixels"] for item in items])})

    def answers(self, outputs: Any, batch: MediaBatch, items: list[Item]) -> list[Any]:
        """Returns a list of labels and scores an image."""
        labels, results = self.settings.labels, []
        for item, scores in zip(items, self._scores(outputs["logits"].float()), strict=True):
            values, classes = scores.topk(min(item["top_k"], len(labels)))
            pairs = zip(classes.tolist(), values.tolist(), strict=True)
            results.append([{"label": labels[at], "score": score} for at, score in pairs])
        return results

    def _scores(self, logits: Tensor) -> Tensor:
        kind = getattr(self.settings.config, "problem_type", None)
        if kind == "regression":
            return logits
        if kind == "multi_label_classification" or logits.shape[1] == 1:
            return logits.sigmoid()
        return logits.softmax(-1)


def _load_processor(directory: Path) -> Any:
    from transformers import AutoImageProcessor

    try:
        return AutoImageProcessor.from_pretrained(directory, local_files_only=True, backend="pil")
    except ImportError as error:
        raise HandlerLoadError("images need Pillow: pip install pillow") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise HandlerLoadError(
            "the archive has no usable preprocessor_config.json, which says what happens to images"
            f" before the model; save it with image_processor.save_pretrained: {error}"
        ) from error


TASK = ImageClassification
