"""ImageClassifier: the built-in handler ``image_classifier``."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from marserve.handlers.images import imagenet_steps
from marserve.handlers.scores import map_class_to_label
from marserve.handlers.vision_handler import VisionHandler


class ImageClassifier(VisionHandler):
    """Names the classes of an image with their probabilities, the best ones first.

    Attributes:
        topk: Number of classes in an answer.
    """

    topk = 5
    image_processing = imagenet_steps()

    def set_max_result_classes(self, topk: int) -> None:
        """Sets the number of classes in an answer."""
        self.topk = topk

    def get_max_result_classes(self) -> int:
        """Returns the number of classes in an answer."""
        return self.topk

    def postprocess(self, data: Tensor) -> list[Any]:
        """Turns logits ``[rows, classes]`` into one object of label and probability a row."""
        probabilities = torch.softmax(data.float(), dim=1)
        count = min(self.topk, probabilities.shape[1])
        best, classes = probabilities.topk(count, dim=1)
        return map_class_to_label(best.tolist(), self.mapping, classes.tolist())
