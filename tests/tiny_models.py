"""Tiny seeded models, saved as Hugging Face directories: real architectures, no download."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
AUTO_CLASSES = {
    "sequence_classification": "AutoModelForSequenceClassification",
    "token_classification": "AutoModelForTokenClassification",
    "question_answering": "AutoModelForQuestionAnswering",
    "text_generation": "AutoModelForCausalLM",
}
_MORE_CLASSES = {"fill_mask": "AutoModelForMaskedLM"}
ENCODERS = ("bert", "distilbert", "roberta")
DECODERS = ("gpt2", "llama")
LABELS = {
    "sequence_classification": {"0": "Not Accepted", "1": "Accepted"},
    "token_classification": {"label_list": "[O, B-MISC, I-MISC, B-PER]"},
}
SEED = 7


def build(kind: str, task: str, directory: Path) -> Path:
    """Saves a model and its tokenizer.

    Args:
        kind: One of `ENCODERS` or `DECODERS`.
        task: A key of `AUTO_CLASSES` or `_MORE_CLASSES`.
        directory: Where to; made if it is missing.

    Returns:
        The directory, with model.safetensors, config.json, tokenizer files and, for the
        classification tasks, index_to_name.json.
    """
    import torch
    import transformers
    from transformers.utils import logging

    config, tokenizer = _architecture(kind)
    if task in LABELS:
        config.num_labels = 2 if task == "sequence_classification" else 4
    with torch.random.fork_rng():
        torch.manual_seed(SEED)
        model = getattr(transformers, {**AUTO_CLASSES, **_MORE_CLASSES}[task]).from_config(config)
        for parameter in model.parameters():  # tiny initial weights would make all answers alike
            parameter.data.add_(torch.randn_like(parameter) * 0.1)
    logging.disable_progress_bar()
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    if task in LABELS:
        (directory / "index_to_name.json").write_text(json.dumps(LABELS[task]))
    return directory


def trace(directory: Path, task: str) -> Path:
    """Writes the TorchScript form of a saved model beside it, as traced_model.pt."""
    import warnings

    import torch
    import transformers

    auto = getattr(transformers, {**AUTO_CLASSES, **_MORE_CLASSES}[task])
    model = auto.from_pretrained(directory)

    class Logits(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(
            self, input_ids: Any, attention_mask: Any, token_type_ids: Any = None
        ) -> tuple[Any, ...]:
            more = {"use_cache": False} if task == "text_generation" else {}
            if token_type_ids is not None:
                more["token_type_ids"] = token_type_ids
            outputs = self.model(input_ids=input_ids, attention_mask=attention_mask, **more)
            return tuple(value for name, value in outputs.items() if name.endswith("logits"))

    ids = torch.ones((2, 9), dtype=torch.int64)
    inputs = (ids, ids, 0 * ids) if model.config.model_type == "bert" else (ids, ids)
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")  # about the branches that a trace freezes
        traced = torch.jit.trace(Logits().eval(), inputs)
        torch.jit.save(traced, directory / "traced_model.pt")
    return directory / "traced_model.pt"


def _architecture(kind: str) -> tuple[Any, Any]:
    sys.path.insert(0, str(EXAMPLES))
    try:
        from tiny_models import tiny
    finally:
        sys.path.remove(str(EXAMPLES))
    return tiny(kind)
