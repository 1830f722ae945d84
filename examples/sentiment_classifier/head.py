"""The trained part of the classifier: what is added to the frozen MiniLM encoder.

A new pooler and classifier, and an update of rank 8 to each matrix of the encoder's last layer
(Hu et al. 2021, "LoRA", arXiv:2106.09685). The updates are added to the matrices when the model
is assembled, so that what is served is an ordinary `BertForSequenceClassification`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.utils import parametrize

RANK = 8
LABEL_NAMES = {0: "Negative", 1: "Positive"}


class LowRankUpdate(nn.Module):
    """`weight + up @ down`: only the two thin matrices are trained.

    Args:
        weight: The matrix to update, [out, in].
    """

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.down = nn.Parameter(torch.randn(RANK, weight.shape[1]) * 0.02)
        self.up = nn.Parameter(torch.zeros(weight.shape[0], RANK))

    def forward(self, weight: Tensor) -> Tensor:
        """Return the updated matrix."""
        return weight + self.up @ self.down


def load_encoder(folder: Path) -> Any:
    """Load the encoder as a two-label BertForSequenceClassification with an untrained head."""
    from transformers import AutoModelForSequenceClassification
    from transformers.utils import logging

    # The classifier is missing from an encoder's file, as it must be: no report about it.
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    model = AutoModelForSequenceClassification.from_pretrained(
        folder, num_labels=len(LABEL_NAMES), dtype=torch.float32
    )
    model.config.id2label = LABEL_NAMES
    model.config.label2id = {name: index for index, name in LABEL_NAMES.items()}
    return model.eval()


def attach(model: Any) -> dict[str, nn.Parameter]:
    """Make the head trainable and everything else frozen.

    Returns:
        The trainable parameters by name: exactly what the head's file holds.
    """
    model.requires_grad_(False)
    for linear in _last_layer_matrices(model):
        parametrize.register_parametrization(linear, "weight", LowRankUpdate(linear.weight))
        linear.parametrizations.weight.original.requires_grad_(False)
    model.bert.pooler.requires_grad_(True)
    model.classifier.requires_grad_(True)
    return {
        name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad
    }


def save_head(model: Any, file: Path) -> None:
    """Write the trainable parameters in half precision."""
    tensors = {
        name: parameter.detach().half().contiguous()
        for name, parameter in model.named_parameters()
        if parameter.requires_grad
    }
    save_file(tensors, file)


def assemble(encoder: Path, head: Path) -> Any:
    """Return the ordinary classifier made of the frozen encoder and a trained head.

    Raises:
        ValueError: The head's file does not fit this encoder.
    """
    model = load_encoder(encoder)
    parameters = attach(model)
    tensors = load_file(head)
    if tensors.keys() != parameters.keys():
        raise ValueError(f"{head} is not a head for {encoder}: its parameter names differ")
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(tensors[name])
    for linear in _last_layer_matrices(model):
        parametrize.remove_parametrizations(linear, "weight", leave_parametrized=True)
    return model.requires_grad_(True).eval()


def first_token_logits(model: Any, hidden: Tensor, mask: Tensor, dropout: float = 0.0) -> Tensor:
    """Run the last layer for the first token alone, then pooler and classifier.

    The classifier looks at nothing else, so this is the model's answer at a tenth of the work.

    Args:
        model: The classifier.
        hidden: Output of the last layer but one, [batch, tokens, width] float32.
        mask: True at real tokens, [batch, tokens] bool.
        dropout: Share of pooled features dropped (training only).

    Returns:
        Logits, [batch, labels].
    """
    layer, heads = model.bert.encoder.layer[-1], model.config.num_attention_heads
    first = hidden[:, :1]
    attention = layer.attention

    def by_head(states: Tensor) -> Tensor:
        batch, tokens, width = states.shape
        return states.view(batch, tokens, heads, width // heads).transpose(1, 2)

    mixed = nn.functional.scaled_dot_product_attention(
        by_head(attention.self.query(first)),
        by_head(attention.self.key(hidden)),
        by_head(attention.self.value(hidden)),
        mask[:, None, None, :],
    )
    attended = attention.output(mixed.transpose(1, 2).flatten(2), first)
    final = layer.output(layer.intermediate(attended), attended)
    pooled = nn.functional.dropout(model.bert.pooler(final), dropout, dropout > 0)
    logits: Tensor = model.classifier(pooled)
    return logits


def _last_layer_matrices(model: Any) -> list[Any]:
    """The six linear maps of the last encoder layer."""
    layer = model.bert.encoder.layer[-1]
    attention = layer.attention
    return [
        attention.self.query,
        attention.self.key,
        attention.self.value,
        attention.output.dense,
        layer.intermediate.dense,
        layer.output.dense,
    ]
