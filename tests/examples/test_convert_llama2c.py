"""The converter, on a checkpoint in llama2.c's format that is made here from known weights."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
import torch
from text_generation import convert_llama2c
from text_generation.convert_llama2c import convert
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

WIDTH, HIDDEN, LAYERS, HEADS, CONTEXT = 8, 12, 2, 2, 16
PIECES = ["▁", "a", "b", "c", "▁a", "ab", "▁ab", "abc"]
VOCAB = 259 + len(PIECES)


def llama() -> LlamaForCausalLM:
    torch.manual_seed(3)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCAB,
            hidden_size=WIDTH,
            intermediate_size=HIDDEN,
            num_hidden_layers=LAYERS,
            num_attention_heads=HEADS,
            num_key_value_heads=HEADS,
            max_position_embeddings=CONTEXT,
            rms_norm_eps=1e-5,
            tie_word_embeddings=True,
        )
    )
    model.eval()
    return model


def neighbours(weight: torch.Tensor) -> torch.Tensor:
    """Rows as llama2.c has them: the two parts of each rotated pair side by side."""
    halves = weight.view(HEADS, 2, WIDTH // HEADS // 2, WIDTH)
    return halves.transpose(1, 2).reshape(WIDTH, WIDTH)


def checkpoint(model: LlamaForCausalLM) -> bytes:
    state = model.state_dict()
    header = struct.pack("<7i", WIDTH, HIDDEN, LAYERS, HEADS, HEADS, VOCAB, CONTEXT)
    tensors = [state["model.embed_tokens.weight"]]
    for name in (
        *("input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        *("self_attn.o_proj", "post_attention_layernorm"),
        *("mlp.gate_proj", "mlp.down_proj", "mlp.up_proj"),
    ):
        for layer in range(LAYERS):
            weight = state[f"model.layers.{layer}.{name}.weight"]
            tensors.append(neighbours(weight) if name.endswith(("q_proj", "k_proj")) else weight)
    tensors.append(state["model.norm.weight"])
    rotations = torch.zeros(CONTEXT * WIDTH // HEADS)  # the file ends with tables nobody needs
    return header + b"".join(tensor.numpy().tobytes() for tensor in [*tensors, rotations])


def tokenizer() -> bytes:
    first = [b"<unk>", b"\n<s>\n", b"\n</s>\n", *(b"<0x%02X>" % byte for byte in range(256))]
    data = struct.pack("<i", 8)
    for piece in [*first, *(piece.replace("▁", " ").encode() for piece in PIECES)]:
        data += struct.pack("<fi", 0.0, len(piece)) + piece
    return data


@pytest.fixture
def converted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    model = checkpoint(llama())
    (tmp_path / "llama2.data").write_bytes(model + tokenizer())
    monkeypatch.setattr(convert_llama2c, "TOKENIZER_START", len(model))
    return convert(tmp_path / "llama2.data", tmp_path / "hf")


def test_answers_as_the_original_weights(converted: Path) -> None:
    ids = torch.tensor([[1, 260, 261, 262, 265]])
    with torch.inference_mode():
        actual = AutoModelForCausalLM.from_pretrained(converted)(ids).logits
        expected = llama()(ids).logits

    torch.testing.assert_close(actual, expected)


def test_merges_in_the_order_of_the_pieces(converted: Path) -> None:
    rebuilt = AutoTokenizer.from_pretrained(converted)

    assert rebuilt.tokenize("ab abc c") == ["▁ab", "▁ab", "c", "▁", "c"]


@pytest.mark.parametrize("text", ["abc", "a b", "ü\n🙂 a", "  ab"])
def test_text_survives_the_round_trip(text: str, converted: Path) -> None:
    rebuilt = AutoTokenizer.from_pretrained(converted)

    assert rebuilt.decode(rebuilt(text).input_ids, skip_special_tokens=True) == text


def test_a_converted_directory_is_taken_as_it_is(converted: Path) -> None:
    before = (converted / "model.safetensors").stat().st_mtime_ns

    assert convert(Path("gone"), converted) == converted
    assert (converted / "model.safetensors").stat().st_mtime_ns == before
