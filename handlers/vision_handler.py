"""VisionHandler: what handlers of images have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from marserve.handlers.base import BaseHandler
from marserve.handlers.errors import RequestError
from marserve.handlers.images import ToTensor, open_image

_EXPLANATION_STEPS = 15


class VisionHandler(BaseHandler):
    """Decodes images; a handler that derives from it says how they become tensors.

    Attributes:
        image_processing: From an image of Pillow to a tensor.
    """

    image_processing: Callable[[Any], Any] = ToTensor()

    def preprocess(self, data: list[Any]) -> Any:
        """Turns rows into ``[rows, channels, height, width] float32`` on the device.

        Args:
            data: One row a request, under ``data`` or ``body``: an image file, its base64 as text,
                or the values of a tensor as nested lists.

        Raises:
            RequestError: If a row is nothing of that, or the images differ in size.
        """
        images = [self.to_tensor(row) for row in data]
        if len({image.shape for image in images}) > 1:
            shapes = ", ".join(str(tuple(image.shape)) for image in images)
            raise RequestError(f"images of one batch must have one shape, got {shapes}")
        return torch.stack(images).to(self.device)

    def to_tensor(self, row: Any) -> Tensor:
        """Returns the tensor of one row, on the CPU."""
        value = row.get("data")
        if value is None:
            value = row.get("body", row.get("b64"))
        if isinstance(value, (bytes, bytearray, str)):
            image = open_image(value, self._limit_pixels())
            tensor: Tensor = self.image_processing(image)
            return tensor
        if isinstance(value, list):
            return _from_lists(value)
        raise RequestError(
            f"the request holds {type(value).__name__}; expected an image file, its base64, or"
            " nested lists of numbers"
        )

    def get_insights(self, tensor_data: Any, _: Any, target: Any = 0) -> list[Any]:
        """Returns how much every pixel added to the score of a class, by integrated gradients.

        Args:
            tensor_data: ``[1, channels, height, width]``.
            target: Index of the class.

        Returns:
            One nested list of the shape of the image.
        """
        from captum.attr import IntegratedGradients

        gradients = IntegratedGradients(self.model)
        attributions: list[Any] = gradients.attribute(
            tensor_data, target=target, n_steps=_EXPLANATION_STEPS
        ).tolist()
        return attributions

    def _limit_pixels(self) -> bool:
        properties = getattr(self.context, "system_properties", None) or {}
        return bool(properties.get("limit_max_image_pixels", True))


def _from_lists(values: list[Any]) -> Tensor:
    try:
        return torch.tensor(values, dtype=torch.float32)
    except (TypeError, ValueError) as error:
        raise RequestError(f"the nested lists are no tensor: {error}") from None
