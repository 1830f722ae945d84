"""A classifier's last layer for each text's first token alone: its head reads no other.

The other tokens of that layer are computed for nobody: their queries, their attention and the
feed-forward part of it, five sixths of its matrix products. Of six layers that is an eighth of a
model's time, of twelve a sixteenth, and the logits are the same.
"""

from __future__ import annotations

import copy
import logging
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from marserve.handlers.runners.base import padded_probe
from marserve.handlers.runners.quantized import DynamicLinear, Float8Linear
from marserve.handlers.runners.unpadded_attention import NAME, Packing, padded_heads

_BERT, _DISTILBERT = "encoder.layer", "transformer.layer"
LAYERS = {
    "bert": _BERT,
    "camembert": _BERT,
    "data2vec-text": _BERT,
    "distilbert": _DISTILBERT,
    "electra": _BERT,
    "ernie": _BERT,
    "roberta": _BERT,
    "xlm-roberta": _BERT,
}
"""Where the base model has its layers, by the config's ``model_type``."""

_HEAD = "ForSequenceClassification"
_ATTENTION = (NAME, "sdpa")
_TOLERANCES = {torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 5e-2}
_ROUNDED = 5e-2
_PROBE_LENGTHS = (7, 3)

_log = logging.getLogger(__name__)


class FirstTokenLayer(nn.Module):
    """A layer of an encoder, computed for the first token of each text.

    Args:
        layer: Of the kind that BERT has, or DistilBERT.
    """

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer: Any = layer
        self._is_bert = hasattr(layer, "intermediate")

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        *_unused: Any,
        packing: Packing | None = None,
        **_more: Any,
    ) -> Tensor:
        """Runs the layer.

        Args:
            hidden_states: ``[rows, tokens, width]``; ``[1, kept, width]`` with ``packing``.
            attention_mask: ``[rows, 1, 1 or tokens, tokens]``, or None for no padding.
            packing: Where each text's tokens are, if they stand end to end.

        Returns:
            ``[rows, 1, width]``.
        """
        if packing is None:
            first = hidden_states[:, :1]
        else:
            first = hidden_states[0].index_select(0, packing.starts[:-1])[:, None]
        query, key, value = self._heads(first, hidden_states)
        if packing is None:
            mask = None if attention_mask is None else attention_mask[:, :, :1]
            attended = scaled_dot_product_attention(query, key, value, attn_mask=mask)
        else:
            attend = attend_each if query.device.type == "cpu" else attend_padded
            attended = attend(query, key, value, packing)
        return self._rest(attended.transpose(1, 2).flatten(2), first)

    def _heads(self, first: Tensor, states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns query, key and value: ``[rows, heads, tokens, width of a head]`` each."""
        part: Any
        if self._is_bert:
            part = self.layer.attention.self
            linears, width = (part.query, part.key, part.value), part.attention_head_size
        else:
            part = self.layer.attention
            linears, width = (part.q_lin, part.k_lin, part.v_lin), part.attention_head_size
        query, key, value = (
            linear(given).unflatten(-1, (-1, width)).transpose(1, 2)
            for linear, given in zip(linears, (first, states, states), strict=True)
        )
        return query, key, value

    def _rest(self, attended: Tensor, first: Tensor) -> Tensor:
        """What follows the attention: ``[rows, 1, width]`` in and out."""
        layer = self.layer
        found: Tensor
        if self._is_bert:
            states = layer.attention.output(attended, first)
            found = layer.output(layer.intermediate(states), states)
        else:
            states = layer.sa_layer_norm(layer.attention.out_lin(attended) + first)
            found = layer.output_layer_norm(layer.ffn(states) + states)
        return found


def attend_each(query: Tensor, key: Tensor, value: Tensor, packing: Packing) -> Tensor:
    """Attention of each text's first token, ``[rows, heads, 1, width]``, by one call a text."""
    parts = (states.split(packing.lengths, dim=2) for states in (key, value))
    each = zip(query.split(1), *parts, strict=True)
    return torch.cat([scaled_dot_product_attention(*text) for text in each])


def attend_padded(query: Tensor, key: Tensor, value: Tensor, packing: Packing) -> Tensor:
    """The same by one call for all texts, padded for it."""
    mask = packing.mask.bool()[:, None, None, :]
    key, value = (padded_heads(states, packing) for states in (key, value))
    return scaled_dot_product_attention(query, key, value, attn_mask=mask)


def narrowed(module: nn.Module) -> nn.Module:
    """Returns a classifier whose last layer computes each text's first token alone.

    The weights are those of ``module``, which itself stays as it is. It is returned where its kind
    is unknown, and where a trial gives other logits, as a head of the user's own may read more.
    """
    config: Any = getattr(module, "config", None)
    path = LAYERS.get(str(getattr(config, "model_type", None)))
    if path is None or not _reads_first_token(module, config):
        return module
    prefix = str(getattr(module, "base_model_prefix", ""))
    changed: nn.Module = _with_last_narrowed(module, [prefix, *path.split(".")])
    if obstacle := _difference(module, changed):
        _log.warning("The last layer is computed for every token: %s", obstacle)
        return module
    return changed


def _reads_first_token(module: nn.Module, config: Any) -> bool:
    kind = type(module)
    return (
        kind.__name__.endswith(_HEAD)
        and kind.__module__.startswith("transformers.")
        and not getattr(config, "is_decoder", False)
        and config._attn_implementation in _ATTENTION
    )


def _with_last_narrowed(module: nn.Module, path: list[str]) -> Any:
    """Copies the modules on a path, not their weights, down to a list; replaces its last one."""
    copied: Any = copy.copy(module)
    copied._modules = dict(module._modules)
    if not path:
        copied._modules[str(len(copied) - 1)] = FirstTokenLayer(copied[-1]).eval()
    else:
        name, *rest = path
        copied._modules[name] = _with_last_narrowed(getattr(module, name), rest)
    return copied


@torch.inference_mode()
def _difference(module: nn.Module, changed: nn.Module) -> str | None:
    """Compares the logits of a small padded batch; returns what is wrong, or None."""
    inputs = padded_probe(module, _PROBE_LENGTHS)
    try:
        expected, found = module(**inputs).logits, changed(**inputs).logits
    except (AttributeError, IndexError, RuntimeError, TypeError, ValueError) as error:
        return f"a trial fails: {error}"
    if found.shape != expected.shape:
        return f"logits are {tuple(found.shape)}, not {tuple(expected.shape)}"
    # What is rounded to eight bits falls to one side or the other by the last bit before it.
    rounded = any(isinstance(part, DynamicLinear | Float8Linear) for part in module.modules())
    tolerance = _ROUNDED if rounded else _TOLERANCES.get(expected.dtype, 1e-5)
    if not torch.allclose(found, expected, rtol=tolerance, atol=tolerance):
        difference = (found - expected).abs().max().item()
        return f"the head seems to read more than the first one: logits differ by {difference:.2g}"
    return None
