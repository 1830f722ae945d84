"""DenseNetHandler: tensors in, tensors out."""

from __future__ import annotations

import io
from typing import Any

import torch
from torch import Tensor

from marserve.handlers.base import BaseHandler
from marserve.handlers.errors import RequestError


class DenseNetHandler(BaseHandler):
    """Takes a tensor saved by ``torch.save`` (or nested lists), answers one saved the same way."""

    def preprocess(self, data: list[Any]) -> Tensor:
        """Turns rows into one batch on the device.

        Raises:
            RequestError: If a row holds no tensor.
        """
        return torch.stack([_tensor(row) for row in data]).to(self.device)

    def postprocess(self, data: Tensor) -> list[Any]:
        """Returns one tensor a row, on the CPU."""
        return [row.clone() for row in data.cpu()]


def _tensor(row: Any) -> Tensor:
    value = row.get("data")
    if value is None:
        value = row.get("body")
    try:
        if isinstance(value, (bytes, bytearray)):
            value = torch.load(io.BytesIO(value), weights_only=True)
        return value if isinstance(value, Tensor) else torch.tensor(value)
    except Exception as error:  # whatever the reader of a foreign file may raise
        raise RequestError(f"the request holds no tensor: {error}") from None
