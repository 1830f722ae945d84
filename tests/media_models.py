"""Tiny seeded models of the tasks beyond four: of images, of sound, with an encoder and decoder."""

from __future__ import annotations

import io
import json
import math
import struct
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.tiny_models import SEED

WORDS = "<pad> </s> <unk> the film is good bad it was in new york summarize translate : ."


def save(kind: str, directory: Path) -> Path:
    """Saves a model with everything that it is served with.

    Args:
        kind: A key of `KINDS`.
        directory: Where to.
    """
    import torch
    from transformers.utils import logging

    logging.disable_progress_bar()
    with torch.random.fork_rng():
        torch.manual_seed(SEED)
        model, *others = KINDS[kind]()
        for parameter in model.parameters():
            parameter.data.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(directory)
    for other in others:
        other.save_pretrained(directory)
    return directory


def vit() -> Any:
    """Six classes of images, 32 x 32 pixels."""
    from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessorPil

    names: dict[int, str] = dict(enumerate(("cat", "dog", "bird", "fish", "horse", "frog")))
    config = ViTConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        image_size=32,
        patch_size=8,
        id2label=names,
        label2id={name: at for at, name in names.items()},
    )
    processor = ViTImageProcessorPil(size={"height": 32, "width": 32})
    return ViTForImageClassification(config), processor


def wav2vec2() -> Any:
    """Letters of speech at 16 kHz, seven parts a second times ten."""
    from transformers import (
        Wav2Vec2Config,
        Wav2Vec2CTCTokenizer,
        Wav2Vec2FeatureExtractor,
        Wav2Vec2ForCTC,
    )

    letters = ["<pad>", "<s>", "</s>", "<unk>", "|", *"ABCDEFGHIJKLMNOPQRSTUVWXYZ"]
    config = Wav2Vec2Config(
        vocab_size=len(letters),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        conv_dim=(16, 16, 16),
        conv_stride=(5, 4, 4),
        conv_kernel=(10, 8, 4),
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4,
        pad_token_id=0,
    )
    with TemporaryDirectory() as scratch:
        vocabulary = Path(scratch, "vocab.json")
        vocabulary.write_text(json.dumps({letter: at for at, letter in enumerate(letters)}))
        tokenizer = Wav2Vec2CTCTokenizer(str(vocabulary))
    return Wav2Vec2ForCTC(config), tokenizer, Wav2Vec2FeatureExtractor(return_attention_mask=False)


def t5() -> Any:
    """Words to words."""
    import transformers

    tokenizer = _words()
    library: Any = transformers
    config = library.T5Config(
        vocab_size=len(tokenizer),
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=2,
        num_heads=4,
        decoder_start_token_id=0,
        pad_token_id=0,
        eos_token_id=1,
        tie_word_embeddings=False,
        task_specific_params={"summarization": {"prefix": "summarize : "}},
    )
    return library.T5ForConditionalGeneration(config), tokenizer


def bart() -> Any:
    """Words to words, its first one forced."""
    from transformers import BartConfig, BartForConditionalGeneration

    tokenizer = _words()
    config = BartConfig(
        vocab_size=len(tokenizer),
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_position_embeddings=64,
        pad_token_id=0,
        bos_token_id=2,
        eos_token_id=1,
        decoder_start_token_id=1,
    )
    model = BartForConditionalGeneration(config)
    model.generation_config.forced_bos_token_id = 2
    model.generation_config.forced_eos_token_id = None
    model.final_logits_bias[0, :3] = -20.0  # or it would have nothing to say
    return model, tokenizer


def whisper() -> Any:
    """Two languages, half a minute heard at once."""
    from transformers import (
        GenerationConfig,
        WhisperConfig,
        WhisperFeatureExtractor,
        WhisperForConditionalGeneration,
    )

    tokenizer = _words(
        ["<|startoftranscript|>", "<|en|>", "<|fr|>", "<|transcribe|>", "<|translate|>", "<|nots|>"]
    )
    number = tokenizer.convert_tokens_to_ids
    config = WhisperConfig(
        vocab_size=len(tokenizer),
        num_mel_bins=16,
        d_model=32,
        encoder_layers=1,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_source_positions=100,
        max_target_positions=24,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=1,
        decoder_start_token_id=number("<|startoftranscript|>"),
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    model = WhisperForConditionalGeneration(config)
    model.generation_config = GenerationConfig(
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=1,
        decoder_start_token_id=number("<|startoftranscript|>"),
        is_multilingual=True,
        lang_to_id={name: number(name) for name in ("<|en|>", "<|fr|>")},
        task_to_id={name: number(f"<|{name}|>") for name in ("transcribe", "translate")},
        no_timestamps_token_id=number("<|nots|>"),
        suppress_tokens=[number("good"), 2],
        begin_suppress_tokens=[number("the")],
        max_length=24,
    )
    heard = WhisperFeatureExtractor(feature_size=16, chunk_length=2, hop_length=160)
    return model, tokenizer, heard


def image(colour: tuple[int, int, int] = (200, 30, 60), size: tuple[int, int] = (50, 40)) -> bytes:
    """A PNG whose pixels grow lighter to the right."""
    from PIL import Image

    picture = Image.new("RGB", size)
    for x in range(size[0]):
        for y in range(size[1]):
            picture.putpixel((x, y), tuple((each + 3 * x + y) % 256 for each in colour))
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    return buffer.getvalue()


def tone(seconds: float, rate: int = 16000, hertz: float = 440.0) -> list[float]:
    """Samples of a tone that grows louder."""
    count = int(seconds * rate)
    return [0.5 * at / count * math.sin(2 * math.pi * hertz * at / rate) for at in range(count)]


def wav(samples: list[float], rate: int = 16000, channels: int = 1) -> bytes:
    """A WAV file of 16 bits."""
    body = b"".join(struct.pack("<h", round(each * 32767)) * channels for each in samples)
    form = struct.pack("<HHIIHH", 1, channels, rate, rate * 2 * channels, 2 * channels, 16)
    chunks = b"fmt " + struct.pack("<I", len(form)) + form
    chunks += b"data" + struct.pack("<I", len(body)) + body
    return b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks


def _words(more: list[str] | None = None) -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    special = more or []
    vocab = {word: at for at, word in enumerate([*WORDS.split(), *special])}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 1)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=64,
        pad_token="<pad>",
        eos_token="</s>",
        unk_token="<unk>",
        additional_special_tokens=special,
    )


KINDS = {"vit": vit, "wav2vec2": wav2vec2, "t5": t5, "bart": bart, "whisper": whisper}
