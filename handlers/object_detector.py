"""ObjectDetector: the built-in handler ``object_detector``."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from marserve.handlers.images import Compose, ToRGB, ToTensor
from marserve.handlers.scores import label_of
from marserve.handlers.vision_handler import VisionHandler


class ObjectDetector(VisionHandler):
    """Finds objects: the model takes a list of images and returns boxes, labels and scores of each.

    Attributes:
        threshold: Objects with a lower score are left out.
    """

    threshold = 0.5
    image_processing = Compose([ToRGB(), ToTensor()])

    def preprocess(self, data: list[Any]) -> list[Tensor]:
        """Turns rows into images ``[3, height, width]``, each of its own size."""
        return [self.to_tensor(row).to(self.device) for row in data]

    @torch.inference_mode()
    def inference(self, data: Any, *args: Any, **kwargs: Any) -> Any:
        """Runs the model on the images of a batch."""
        return self.model(data, *args, **kwargs)

    def postprocess(self, data: list[dict[str, Tensor]]) -> list[Any]:
        """Turns the model's answer into one list a row of ``{label: box, "score": score}``.

        Args:
            data: For every image ``boxes [objects, 4]`` as x1, y1, x2, y2 in pixels, ``labels`` and
                ``scores``, both ``[objects]``.
        """
        return [self._objects(found) for found in data]

    def _objects(self, found: dict[str, Tensor]) -> list[dict[str, Any]]:
        kept = found["scores"] >= self.threshold
        columns = (found[key][kept].tolist() for key in ("labels", "boxes", "scores"))
        return [
            {label_of(label, self.mapping): box, "score": score}
            for label, box, score in zip(*columns, strict=True)
        ]
