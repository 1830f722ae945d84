"""Images to tensors: the usual steps before a vision model, on Pillow and PyTorch alone.

They take the place of torchvision's of the same names, which a handler may use just as well: all
are called with an image, or with what the step before returned.
"""

from __future__ import annotations

import base64
import binascii
import io
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from marserve.archiver.errors import HandlerLoadError
from marserve.handlers.errors import RequestError

if TYPE_CHECKING:
    from PIL.Image import Image

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


class Compose:
    """Steps in a row.

    Args:
        steps: Each is called with the result of the one before.
    """

    def __init__(self, steps: Sequence[Callable[[Any], Any]]) -> None:
        self.steps = list(steps)

    def __call__(self, image: Any) -> Any:
        """Returns the result of the last step."""
        for step in self.steps:
            image = step(image)
        return image


class ToRGB:
    """Three channels, whatever the image has: grey, palette, CMYK, transparency."""

    def __call__(self, image: Image) -> Image:
        """Returns an image of mode RGB."""
        return image if image.mode == "RGB" else image.convert("RGB")


class Resize:
    """Scales the shorter side, bilinear with antialiasing, and keeps the ratio.

    Args:
        size: Length of the shorter side, in pixels.
    """

    def __init__(self, size: int) -> None:
        self.size = size

    def __call__(self, image: Image) -> Image:
        """Returns the scaled image."""
        from PIL.Image import Resampling

        short = min(image.size)
        width, height = (max(1, self.size * side // short) for side in image.size)
        return image.resize((width, height), Resampling.BILINEAR)


class CenterCrop:
    """Cuts out the middle; an image that is smaller gets a black border.

    Args:
        size: Width and height, in pixels.
    """

    def __init__(self, size: int) -> None:
        self.size = size

    def __call__(self, image: Image) -> Image:
        """Returns the square in the middle."""
        left = round((image.width - self.size) / 2)
        top = round((image.height - self.size) / 2)
        return image.crop((left, top, left + self.size, top + self.size))


class ToTensor:
    """Pixels to ``[channels, height, width] float32`` from 0 to 1."""

    def __call__(self, image: Image) -> Tensor:
        """Returns the tensor."""
        if image.mode not in ("L", "RGB", "RGBA", "LA"):
            image = image.convert("RGB")
        pixels = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)
        channels = len(image.getbands())
        rows = pixels.view(image.height, image.width, channels)
        return rows.permute(2, 0, 1).contiguous().float().div_(255)


class Normalize:
    """Subtracts a mean and divides by a deviation, channel by channel.

    Args:
        mean: One a channel.
        std: One a channel.
    """

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        self.mean = torch.tensor(mean).view(-1, 1, 1)
        self.std = torch.tensor(std).view(-1, 1, 1)

    def __call__(self, image: Tensor) -> Tensor:
        """Returns the normalized tensor."""
        return (image - self.mean) / self.std


def imagenet_steps() -> Compose:
    """Returns what models trained on ImageNet expect: ``[3, 224, 224] float32``."""
    normalize = Normalize(IMAGENET_MEAN, IMAGENET_STD)
    return Compose([ToRGB(), Resize(256), CenterCrop(224), ToTensor(), normalize])


def open_image(data: bytes | bytearray | str, limit_pixels: bool = True) -> Image:
    """Decodes an image file.

    Args:
        data: The file; or its base64 as text, also as a ``data:`` URL.
        limit_pixels: Whether Pillow's limit on the number of pixels stays in force.

    Raises:
        RequestError: If it is no image that Pillow can read, or has too many pixels.
        HandlerLoadError: If Pillow is not installed.
    """
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        raise HandlerLoadError("images need Pillow: pip install pillow") from error
    if isinstance(data, str):
        data = _unbase64(data)
    if not limit_pixels:
        Image.MAX_IMAGE_PIXELS = None
    try:
        image = Image.open(io.BytesIO(data))
        image.load()
    except Image.DecompressionBombError as error:
        raise RequestError(f"the image is too large: {error}", 413) from None
    except (OSError, ValueError, SyntaxError, EOFError) as error:
        # Pillow's text of this one names the address of an object of ours.
        is_unknown = isinstance(error, UnidentifiedImageError)
        reason = "of no format that Pillow knows" if is_unknown else error
        raise RequestError(
            f"the body of {len(data)} bytes is no readable image: {reason}"
        ) from None
    return image


def _unbase64(text: str) -> bytes:
    encoded = text.partition(",")[2] if text.startswith("data:") else text
    try:
        return base64.b64decode("".join(encoded.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise RequestError(f"the body is text but no base64 of an image: {error}") from None
