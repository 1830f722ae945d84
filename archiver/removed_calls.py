"""Calls of transformers' functions that its version 5 no longer has, found by reading the code.

Source: the classes of transformers 5.23, which have none of these attributes. A call counts only in
a file that imports transformers or optimum: other libraries have methods of the same names.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from marserve.archiver.findings import Finding

_TOKENIZER = "call the tokenizer itself: tokenizer(text, ...) takes the same arguments"
REMOVED_METHODS = {
    "encode_plus": _TOKENIZER,
    "batch_encode_plus": _TOKENIZER,
    "prepare_for_model": _TOKENIZER,
    "prepare_seq2seq_batch": "call the tokenizer with text=... and text_target=...",
    "as_target_tokenizer": "call the tokenizer with text_target=...",
    "build_inputs_with_special_tokens": _TOKENIZER,
    "create_token_type_ids_from_sequences": _TOKENIZER,
    "parallelize": 'load the model with device_map="auto"',
    "deparallelize": 'load the model with device_map="auto"',
    "to_bettertransformer": "drop it: scaled dot-product attention is the default",
    "reverse_bettertransformer": "drop it: scaled dot-product attention is the default",
}
REMOVED_NAMES = {
    "AdamW": "torch.optim.AdamW",
    "AutoModelWithLMHead": "AutoModelForCausalLM, AutoModelForMaskedLM or AutoModelForSeq2SeqLM",
    "TextDataset": "the datasets library",
    "LineByLineTextDataset": "the datasets library",
}
_LIBRARIES = ("transformers", "optimum")
_OURS = (
    "serve it by the transformer handler: useHandler: transformer_handler in model-config.yaml, or"
    " handler=transformer_handler in the register call"
)
_OLD = (
    "or keep the file: --requirements-file with transformers<5, useVenv: true in model-config.yaml,"
    " and install_py_dep_per_model=true in config.properties"
)


def removed_calls(tree: ast.Module, file: str, *, replaceable: bool) -> list[Finding]:
    """Returns what a file uses that transformers 5 does not have.

    Args:
        tree: The file.
        file: Its name.
        replaceable: Whether it is a handler, which ours can stand in for.
    """
    if not any(name.partition(".")[0] in _LIBRARIES for name in _imported(tree)):
        return []
    advice = f"{_OURS}; {_OLD}" if replaceable else _OLD.removeprefix("or ")
    return [
        Finding("error", f"{what} ({instead})", advice, file, line)
        for line, what, instead in sorted(set(_found(tree)))
    ]


def is_removed_call(finding: Finding) -> bool:
    """Returns whether a finding is one of ``removed_calls``."""
    return finding.remedy.endswith(_OLD.removeprefix("or "))


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def _found(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr=name)) if name in REMOVED_METHODS:
                yield node.lineno, f"{name}() is gone in transformers 5", REMOVED_METHODS[name]
            case ast.ImportFrom(module="optimum.bettertransformer"):
                text = "optimum.bettertransformer is gone: Optimum dropped BetterTransformer"
                yield node.lineno, text, "handler.BetterTransformer of ours packs batches instead"
            case ast.Import(names=names) if any(
                alias.name == "optimum.bettertransformer" for alias in names
            ):
                text = "optimum.bettertransformer is gone: Optimum dropped BetterTransformer"
                yield node.lineno, text, "handler.BetterTransformer of ours packs batches instead"
            case ast.ImportFrom(module="transformers", names=names):
                for alias in names:
                    if alias.name in REMOVED_NAMES:
                        instead = f"use {REMOVED_NAMES[alias.name]}"
                        yield node.lineno, f"{alias.name} is gone in transformers 5", instead
                    elif alias.name.startswith(("TFAuto", "FlaxAuto")):
                        instead = "transformers 5 runs on PyTorch alone"
                        yield node.lineno, f"{alias.name} is gone in transformers 5", instead
