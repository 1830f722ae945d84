"""Weights of eight bits: the linear layers of an eager model, quantised while it is loaded.

Weights have a scale for each output channel. The ``dynamic`` schemes also round what enters, with a
scale for each token: a text's answer depends neither on its longest outlier nor on the other
texts of the batch. Only the repeated layers are quantised; embeddings and the task's head stay.
"""

from __future__ import annotations

import platform
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from marserve.archiver.errors import HandlerLoadError

_FLOAT8 = torch.float8_e4m3fn
_FLOAT8_CAPABILITY = (8, 9)  # Ada and Hopper
_TINY = 1e-12  # a token of zeros has some scale too
_KEY = "model-config.yaml: $.handler.quantization"


class DynamicLinear(nn.Module):
    """A linear layer of eight-bit products: ``[..., in] float32`` to ``[..., out] float32``.

    Args:
        weight: ``[out, in] float32``.
        bias: ``[out] float32``, or None.
    """

    weight = None  # models such as T5 look for what a layer of their own would compute in

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        values, scales = quantize(weight)
        zeros = torch.zeros(len(scales), dtype=torch.int64)
        operators: Any = torch.ops.quantized
        make: Any = torch.__dict__["_make_per_channel_quantized_tensor"]
        with _engine(), warnings.catch_warnings():
            # PyTorch is to drop tensors of quantised type; its operators take no others yet.
            warnings.simplefilter("ignore", UserWarning)
            packed = make(values, scales.double(), zeros, 0)
            self._packed = operators.linear_prepack(packed, None)
        self._multiply = operators.linear_dynamic
        self._seven_bits = not multiplies_eight_bits()
        self.bias = torch.zeros(len(weight)) if bias is None else bias.detach().clone()

    def forward(self, states: Tensor) -> Tensor:
        """Rounds each token to its own scale, and multiplies."""
        largest = torch.maximum(states.amax(-1, True), states.amin(-1, True).neg_())
        largest.clamp_min_(_TINY)
        product = self._multiply(states / largest, self._packed, self._seven_bits)
        return torch.addcmul(self.bias, product, largest)


class WeightOnlyLinear(nn.Module):
    """A linear layer that keeps a quarter of the bytes and computes as before.

    Args:
        weight: ``[out, in]``.
        bias: ``[out]``, or None.
    """

    weight = None  # models such as T5 look for what a layer of their own would compute in

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        values, scales = quantize(weight)
        self.register_buffer("values", values)
        self.register_buffer("scales", scales[:, None].to(weight.dtype))
        self.register_buffer("bias", None if bias is None else bias.detach().clone())
        self.values: Tensor
        self.scales: Tensor
        self.bias: Tensor | None

    def forward(self, states: Tensor) -> Tensor:
        """Widens the weights for the time of one product."""
        weight = self.values.to(states.dtype).mul_(self.scales)
        return nn.functional.linear(states, weight, self.bias)


class Float8Linear(nn.Module):
    """A linear layer of products of eight-bit floating point numbers, for GPUs that multiply them.

    Args:
        weight: ``[out, in]``.
        bias: ``[out]``, or None.
    """

    weight = None

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        values, scales = _to_float8(weight.detach())
        self.register_buffer("values", values)
        self.register_buffer("scales", scales.t().contiguous())
        self.register_buffer("bias", None if bias is None else bias.detach().clone())
        self.values: Tensor
        self.scales: Tensor
        self.bias: Tensor | None

    def forward(self, states: Tensor) -> Tensor:
        """Rounds each token to its own scale, and multiplies."""
        rounded, scales = _to_float8(states.reshape(-1, states.shape[-1]))
        # The only type that GPUs give where each row has its scale.
        given = torch.bfloat16 if states.is_cuda else states.dtype
        product: Tensor = torch.ops.aten._scaled_mm.default(
            rounded, self.values.t(), scales, self.scales, out_dtype=given
        )
        product = product.to(states.dtype)
        product = product if self.bias is None else product + self.bias
        return product.view(*states.shape[:-1], -1)


def _to_float8(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Returns ``[rows, columns] float8`` and a scale for each row, ``[rows, 1] float32``."""
    scales = rows.float().abs().amax(1, True).clamp_min(_TINY) / torch.finfo(_FLOAT8).max
    return (rows.float() / scales).to(_FLOAT8), scales


LINEARS: dict[str, type[DynamicLinear | WeightOnlyLinear | Float8Linear]] = {
    "int8_dynamic": DynamicLinear,
    "int8_weight_only": WeightOnlyLinear,
    "float8_dynamic": Float8Linear,
}


def quantize(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Rounds a matrix to eight bits.

    Args:
        weight: ``[out, in]``, of any floating type.

    Returns:
        ``[out, in] int8`` and ``[out] float32``, whose product is about the matrix.
    """
    wide = weight.detach().float()
    scales = wide.abs().amax(1).clamp_min(_TINY) / 127
    return (wide / scales[:, None]).round_().to(torch.int8), scales


def quantize_module(module: nn.Module, scheme: str) -> nn.Module:
    """Replaces the linear layers of a model's blocks in place.

    Args:
        module: A transformers model for inference.
        scheme: A key of ``LINEARS``.

    Returns:
        The module.

    Raises:
        HandlerLoadError: If the scheme cannot run on the module's device or with its dtype, or
            there is nothing to quantise.
    """
    parameter = next(module.parameters())
    if scheme == "int8_dynamic" and parameter.device.type != "cpu":
        raise HandlerLoadError(
            f"{_KEY}: int8_dynamic runs on the CPU only, and this worker has"
            f" {parameter.device}; expected int8_weight_only, or dtype: float16 or bfloat16"
        )
    if scheme == "int8_dynamic" and parameter.dtype != torch.float32:
        raise HandlerLoadError(
            f"{_KEY}: int8_dynamic needs the rest of the model in float32, and it is"
            f" {str(parameter.dtype).removeprefix('torch.')}; set handler.dtype: float32"
        )
    _check_float8(scheme, parameter.device)
    found = list(_linears(module))
    if not found:
        raise HandlerLoadError(
            f"{_KEY}: {type(module).__name__} has no linear layers in repeated blocks; remove"
            " the key"
        )
    for parent, name, weight, bias in found:
        setattr(parent, name, LINEARS[scheme](weight, bias))
    return module


def _check_float8(scheme: str, device: torch.device) -> None:
    if scheme != "float8_dynamic" or device.type != "cuda":
        return
    capability = torch.cuda.get_device_capability(device)
    if capability < _FLOAT8_CAPABILITY:
        found, least = (".".join(map(str, pair)) for pair in (capability, _FLOAT8_CAPABILITY))
        raise HandlerLoadError(
            f"{_KEY}: float8_dynamic needs a GPU of compute capability {least} or above, and this"
            f" one has {found}; expected int8_weight_only, or dtype: float16 or bfloat16"
        )


def multiplies_eight_bits() -> bool:
    """Whether eight bits times eight bits add up without overflow here.

    x86 without VNNI adds two products in sixteen bits, which overflows; seven bits fit.
    """
    if platform.machine() not in ("x86_64", "AMD64"):
        return True
    features = torch.cpu.get_capabilities()
    return bool(features.get("avx512_vnni") or features.get("avx_vnni"))


def _linears(module: nn.Module) -> Iterator[tuple[nn.Module, str, Tensor, Tensor | None]]:
    """Each linear layer of a block: who holds it, under which name, its weight and bias."""
    from transformers.pytorch_utils import Conv1D

    seen: set[nn.Module] = set()
    for blocks in [part for part in module.modules() if isinstance(part, nn.ModuleList)]:
        for parent in [part for part in blocks.modules() if part not in seen]:
            seen.add(parent)
            for name, layer in parent.named_children():
                if type(layer) is nn.Linear:
                    yield parent, name, layer.weight, layer.bias
                elif isinstance(layer, Conv1D):
                    yield parent, name, layer.weight.t(), layer.bias


@contextmanager
def _engine() -> Iterator[None]:
    """With VNNI, oneDNN is up to twice as fast as PyTorch's own choice; without, slower."""
    backends: Any = torch.backends
    engines = backends.quantized
    before = engines.engine
    if "onednn" in engines.supported_engines and multiplies_eight_bits():
        engines.engine = "onednn"
    try:
        yield
    finally:
        engines.engine = before
