"""Attention within each of several texts that stand end to end in one row, for transformers models.

It is registered with transformers as an attention implementation of its own. Where a call of the
model brings no ``packing``, as explanations' do, it is SDPA over padded rows as ever.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

NAME = "marserve_packed"
KEYWORD = "packing"


@dataclass(frozen=True)
class Packing:
    """Where the tokens of some padded rows stand when padding is left out.

    Args:
        mask: ``[rows, tokens] int64``, one at a token of the text and zero at padding.
    """

    mask: Tensor

    @cached_property
    def lengths(self) -> list[int]:
        """Tokens of each row."""
        lengths: list[int] = self.mask.sum(1).tolist()
        return lengths

    @cached_property
    def places(self) -> Tensor:
        """Indices of the texts' tokens in the rows laid end to end: ``[kept] int64``."""
        return self.mask.flatten().nonzero().squeeze(1)

    @cached_property
    def starts(self) -> Tensor:
        """Where each text begins among the kept tokens, and their number: ``[rows + 1] int32``."""
        ends = self.mask.sum(1).cumsum(0)
        return nn.functional.pad(ends, (1, 0)).to(torch.int32)

    def pack(self, values: Tensor) -> Tensor:
        """Returns ``[1, kept, width]`` of ``[rows, tokens, width]``."""
        return values.flatten(0, 1).index_select(0, self.places)[None]

    def unpack(self, values: Tensor) -> Tensor:
        """Returns ``[rows, tokens, width]`` of ``[1, kept, width]``, zero at padding."""
        rows = values.new_zeros((self.mask.numel(), values.shape[-1]))
        return rows.index_copy_(0, self.places, values[0]).view(*self.mask.shape, -1)


def register() -> None:
    """Makes the implementation known to transformers, which masks its padded rows as for SDPA."""
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, sdpa_mask)


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Returns the attention of every token to those of its own text.

    Args:
        module: The layer that asks.
        query: ``[1, heads, kept, width]``; key and value alike.
        key: See query.
        value: See query.
        attention_mask: Of padded rows alone.
        scaling: Of the products; None for the usual one.
        kwargs: ``packing``, and what other implementations take.

    Returns:
        ``[1, kept, heads, width]``, and None for the weights, which nobody asked for.

    Raises:
        NotImplementedError: If the layer wants more than plain attention, such as a bias.
    """
    packing: Packing | None = kwargs.pop(KEYWORD, None)
    if packing is None:
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        done: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **kwargs
        )
        return done
    if kwargs.get("position_bias") is not None or key.shape != query.shape:
        raise NotImplementedError("attention with a bias, or with fewer heads for keys")
    if has_varlen(query):
        return _attend_varlen(query, key, value, packing, scaling), None
    if query.device.type == "cpu":
        return attend_each(query, key, value, packing, scaling), None
    return attend_padded(query, key, value, packing, scaling), None


def has_varlen(query: Tensor) -> bool:
    """Whether PyTorch has a kernel for packed texts: on CUDA, with numbers of 16 bits."""
    if not query.is_cuda or query.dtype not in (torch.float16, torch.bfloat16):
        return False
    if torch.cuda.get_device_capability(query.device) < (8, 0):
        return False
    return find_spec("torch.nn.attention.varlen") is not None  # PyTorch 2.10 and newer


def _attend_varlen(
    query: Tensor, key: Tensor, value: Tensor, packing: Packing, scaling: float | None
) -> Tensor:
    from torch.nn.attention.varlen import varlen_attn

    starts, longest = packing.starts, packing.mask.shape[1]
    q, k, v = (states[0].transpose(0, 1).contiguous() for states in (query, key, value))
    attended: Any = varlen_attn(q, k, v, starts, starts, longest, longest, scale=scaling)
    out: Tensor = attended
    return out[None]


def attend_each(
    query: Tensor, key: Tensor, value: Tensor, packing: Packing, scaling: float | None
) -> Tensor:
    """Attention by one call a text: on the CPU that costs less than padding."""
    parts = (states.split(packing.lengths, dim=2) for states in (query, key, value))
    attended = [
        scaled_dot_product_attention(q, k, v, scale=scaling) for q, k, v in zip(*parts, strict=True)
    ]
    return torch.cat([part.transpose(1, 2) for part in attended], dim=1)


def attend_padded(
    query: Tensor, key: Tensor, value: Tensor, packing: Packing, scaling: float | None
) -> Tensor:
    """Attention by one call for all rows, padded for it: elsewhere that costs less."""
    heads, width = query.shape[1], query.shape[3]
    q, k, v = (padded_heads(states, packing) for states in (query, key, value))
    mask = packing.mask.bool()[:, None, None, :]
    attended = scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scaling)
    return packing.pack(attended.transpose(1, 2).flatten(2)).view(1, -1, heads, width)


def padded_heads(states: Tensor, packing: Packing) -> Tensor:
    """Returns ``[rows, heads, tokens, width]`` of ``[1, heads, kept, width]``."""
    padded = packing.unpack(states.transpose(1, 2).flatten(2))
    return padded.view(*padded.shape[:2], -1, states.shape[3]).transpose(1, 2)
