"""Tiny seeded models and their tokenizers: real architectures, random weights, no download.

They prove that packing, serving and explaining work, and are quick; what they answer means
nothing. `tiny:bert`, `tiny:distilbert`, `tiny:roberta`, `tiny:gpt2` and `tiny:llama` name them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import AutoConfig, PreTrainedTokenizerFast

_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789.,;:!?'\"()-"
_WORDS = "the a is was in of to and it i this that film movie good bad where what who new york"
_SMALL = {
    "vocab_size": 0,  # filled from the tokenizer
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 512,
}
_ENCODER_TOKENS = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}


def _wordpiece(segments: bool = True) -> PreTrainedTokenizerFast:
    """Lower-cased words from a short list, other words by letters; `segments` as in BERT."""
    special = list(_ENCODER_TOKENS.values())
    pieces = [*special, *_ALPHABET, *(f"##{letter}" for letter in _ALPHABET), *_WORDS.split()]
    vocab = {piece: index for index, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(
        ("[SEP]", vocab["[SEP]"]), ("[CLS]", vocab["[CLS]"])
    )
    tokenizer.decoder = decoders.WordPiece()
    names = ["input_ids", *(["token_type_ids"] if segments else []), "attention_mask"]
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=512,
        model_input_names=names,
        **_ENCODER_TOKENS,
    )


def _bytes(special: dict[str, str], wrap: bool) -> PreTrainedTokenizerFast:
    """One token a byte, as GPT-2's tokenizer without merges; `wrap` adds RoBERTa's frame."""
    names = list(dict.fromkeys(special.values()))
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {piece: index for index, piece in enumerate([*names, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    if wrap:
        tokenizer.post_processor = processors.RobertaProcessing(
            (special["sep_token"], vocab[special["sep_token"]]),
            (special["cls_token"], vocab[special["cls_token"]]),
            add_prefix_space=False,
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=512,
        model_input_names=["input_ids", "attention_mask"],
        **special,
    )


_ROBERTA_TOKENS = {
    "cls_token": "<s>",
    "bos_token": "<s>",
    "pad_token": "<pad>",
    "sep_token": "</s>",
    "eos_token": "</s>",
    "unk_token": "<unk>",
    "mask_token": "<mask>",
}
_END: dict[str, str] = dict.fromkeys(("bos_token", "eos_token", "pad_token"), "<|endoftext|>")
_LLAMA_TOKENS = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "</s>"}
_Recipe = tuple[Callable[[], PreTrainedTokenizerFast], dict[str, Any]]
TINY: dict[str, _Recipe] = {
    "bert": (_wordpiece, _SMALL),
    "distilbert": (
        lambda: _wordpiece(segments=False),
        {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64},
    ),
    "roberta": (lambda: _bytes(_ROBERTA_TOKENS, wrap=True), {**_SMALL, "type_vocab_size": 1}),
    "gpt2": (
        lambda: _bytes(_END, wrap=False),
        {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 512},
    ),
    "llama": (lambda: _bytes(_LLAMA_TOKENS, wrap=False), {**_SMALL, "num_key_value_heads": 2}),
}


def tiny(architecture: str) -> tuple[Any, PreTrainedTokenizerFast]:
    """Return the config and tokenizer of a tiny model; its weights come from the seed in force.

    Args:
        architecture: A key of `TINY`.

    Raises:
        ValueError: The architecture is not in the table.
    """
    if architecture not in TINY:
        raise ValueError(f"no tiny model {architecture!r}; there are: {', '.join(TINY)}")
    make_tokenizer, sizes = TINY[architecture]
    tokenizer = make_tokenizer()
    marks: dict[str, Any] = {"pad_token_id": tokenizer.pad_token_id}
    for mark in ("bos", "eos"):
        if getattr(tokenizer, f"{mark}_token_id") is not None:
            marks[f"{mark}_token_id"] = getattr(tokenizer, f"{mark}_token_id")
    config = AutoConfig.for_model(architecture, **{**sizes, "vocab_size": len(tokenizer), **marks})
    if architecture == "roberta":  # its positions start after the padding index
        config.max_position_embeddings = 512 + int(marks["pad_token_id"]) + 1
    return config, tokenizer
