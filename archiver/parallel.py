"""Which models several processes can share, told from config.json, and how they are arranged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PIPELINED = (
    *("bert", "camembert", "distilbert", "gpt2", "llama"),
    *("mistral", "qwen2", "roberta", "xlm-roberta"),
)
"""Values of ``model_type`` of models whose layers can be divided, and whose list of layers too."""
DIVISIBLE = (*PIPELINED, "t5")
"""Those and the ones whose layers alone can be divided."""

_HEADS = ("num_attention_heads", "num_key_value_heads", "num_heads", "n_heads", "n_head")
_LAYERS = ("num_hidden_layers", "num_layers", "n_layers", "n_layer")
KEYS = ("model_type", *_HEADS, *_LAYERS)
"""The keys of config.json that say whether a model can be divided."""


def arrange(kind: str, ranks: int) -> tuple[int, int]:
    """Returns the stages of a pipeline and the shards of each.

    Args:
        kind: ``tp`` for shards, ``pp`` for stages, ``pptp`` for two stages of shards.
        ranks: How many processes share the model.

    Raises:
        ValueError: If so many cannot be arranged so; the text says what is expected.
    """
    if kind == "pptp" and (ranks < 4 or ranks % 2):
        raise ValueError(
            "parallelType: pptp makes two stages of several shards each; expected"
            f" torchrun.nproc-per-node: 4 or another even number above, got {ranks}"
        )
    stages = {"tp": 1, "pp": ranks, "pptp": 2}[kind]
    return stages, ranks // stages


def division_problem(config: Mapping[str, Any], stages: int, shards: int) -> str | None:
    """Returns why a model cannot be divided so, or None; what its config does not say may be.

    Args:
        config: The content of config.json; or the same ``KEYS`` of a transformers config.
        stages: Parts of the pipeline.
        shards: Parts of each layer.
    """
    kind = config.get("model_type")
    if kind not in DIVISIBLE:
        known = ", ".join(sorted(DIVISIBLE))
        return f"model_parallel: models of type {kind} cannot be divided; there are {known}"
    if stages > 1 and kind not in PIPELINED:
        return f"parallelType: a pipeline cannot cut models of type {kind}; expected tp"
    heads = [n for name in _HEADS if isinstance(n := config.get(name), int)]
    if any(number % shards for number in heads):
        counts = " and ".join(map(str, dict.fromkeys(heads)))
        return (
            f"parallelType: the model has {counts} heads, which {shards} ranks cannot share evenly"
        )
    layers = [n for name in _LAYERS if isinstance(n := config.get(name), int)]
    if layers and layers[0] < stages:
        return f"parallelType: the model has {layers[0]} layers, fewer than the {stages} stages"
    return None
