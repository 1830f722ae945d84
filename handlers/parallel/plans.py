"""How the layers of each kind of model are divided among ranks.

A layer's first matrices are cut by columns and its last one by rows, so that each rank computes
some heads and some hidden units from end to end and one sum a block makes their results whole.

Source: Shoeybi et al., "Megatron-LM", 2019, section 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from marserve.archiver.errors import HandlerLoadError
from marserve.archiver.parallel import KEYS, division_problem


@dataclass(frozen=True, slots=True)
class Plan:
    """The modules of a model that are divided; names are endings of their full names.

    Args:
        columns: Matrices of which each rank has some outputs.
        rows: Matrices of which each rank has some inputs; the outputs are added up.
        packed: Matrices whose outputs are queries, keys and values, one after the other.
        biases: Embeddings with a column for each head.
        counts: Attributes of attention modules that count what is divided.
        layers: Where the base model has its list of layers; None if a pipeline cannot cut it.
    """

    columns: tuple[str, ...]
    rows: tuple[str, ...]
    packed: tuple[str, ...] = ()
    biases: tuple[str, ...] = ()
    counts: tuple[str, ...] = ()
    layers: str | None = None


_BERT = Plan(
    columns=(".self.query", ".self.key", ".self.value", ".intermediate.dense"),
    rows=(".output.dense",),
    counts=("num_attention_heads", "all_head_size"),
    layers="encoder.layer",
)
_LLAMA = Plan(
    columns=(".q_proj", ".k_proj", ".v_proj", ".gate_proj", ".up_proj"),
    rows=(".o_proj", ".down_proj"),
    layers="layers",
)
PLANS = {
    "bert": _BERT,
    "roberta": _BERT,
    "xlm-roberta": _BERT,
    "camembert": _BERT,
    "distilbert": Plan(
        columns=(".q_lin", ".k_lin", ".v_lin", ".ffn.lin1"),
        rows=(".out_lin", ".ffn.lin2"),
        counts=("n_heads", "dim"),
        layers="transformer.layer",
    ),
    "gpt2": Plan(
        columns=(".mlp.c_fc",),
        rows=(".attn.c_proj", ".mlp.c_proj"),
        packed=(".attn.c_attn",),
        counts=("num_heads", "split_size"),
        layers="h",
    ),
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "qwen2": _LLAMA,
    "t5": Plan(
        columns=(".q", ".k", ".v", ".wi", ".wi_0", ".wi_1"),
        rows=(".o", ".wo"),
        biases=(".relative_attention_bias",),
        counts=("n_heads", "inner_dim"),
    ),
}
"""By the ``model_type`` of config.json."""


def find_plan(config: Any, stages: int, shards: int) -> Plan:
    """Returns how a model is divided.

    Args:
        config: Its transformers config.
        stages: Parts of the pipeline.
        shards: Parts of each layer.

    Raises:
        HandlerLoadError: If it cannot be divided so.
    """
    known = {key: getattr(config, key, None) for key in KEYS}
    if problem := division_problem(known, stages, shards):
        raise HandlerLoadError(problem)
    return PLANS[config.model_type]
