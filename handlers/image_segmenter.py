"""ImageSegmenter: the built-in handler ``image_segmenter``."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from marserve.handlers.images import imagenet_steps
from marserve.handlers.vision_handler import VisionHandler


class ImageSegmenter(VisionHandler):
    """Names the class of every pixel; the model's logits are under ``out`` of its result."""

    image_processing = imagenet_steps()

    def postprocess(self, data: dict[str, Tensor] | Tensor) -> list[Any]:
        """Turns logits ``[rows, classes, height, width]`` into nested lists.

        Returns:
            For every row ``[height][width]`` pairs of the best class and its probability.
        """
        logits = data if isinstance(data, Tensor) else data["out"]
        probabilities, classes = torch.softmax(logits.float(), dim=1).max(dim=1)
        pairs: list[Any] = torch.stack(
            [classes.to(probabilities.dtype), probabilities], dim=3
        ).tolist()
        return pairs
