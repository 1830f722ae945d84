"""From texts to one batch of padded token ids, and from a batch to parts of similar length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tokenizers import Encoding, Tokenizer
from torch import Tensor

Text = str | tuple[str, str]


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """The tokens of some texts.

    Args:
        inputs: What the model takes, by name; each ``[rows, tokens] int64``, padded to the longest.
        encodings: One a row, with its ids and masks, and offsets where they were asked for; padded
            alike.
        backend: The tokenizer that made them.
        texts: One a row.
    """

    inputs: dict[str, Tensor]
    encodings: list[Encoding]
    backend: Tokenizer
    texts: Sequence[Text] = ()

    def __len__(self) -> int:
        return len(self.encodings)

    def kept(self, row: int) -> list[int]:
        """Returns the positions of a row that are no padding."""
        return [at for at, mask in enumerate(self.encodings[row].attention_mask) if mask]

    def tokens(self, row: int) -> list[str]:
        """Returns the tokens of a row as the tokenizer spells them, without padding."""
        encoding = self.encodings[row]
        kept = zip(encoding.ids, encoding.attention_mask, strict=True)
        return [str(self.backend.id_to_token(token)) for token, mask in kept if mask]

    def select(self, rows: Sequence[int]) -> TokenBatch:
        """Returns a batch of some of the rows."""
        inputs = {name: values[list(rows)] for name, values in self.inputs.items()}
        encodings = [self.encodings[row] for row in rows]
        return TokenBatch(inputs, encodings, self.backend, [self.texts[row] for row in rows])

    def to(self, device: torch.device) -> TokenBatch:
        """Returns the batch with its tensors on a device."""
        if device.type == "cpu":
            return self
        moved = {name: t.to(device, non_blocking=True) for name, t in self.inputs.items()}
        return TokenBatch(moved, self.encodings, self.backend, self.texts)


class Encoder:
    """Turns texts into token ids, padded to the longest of the batch.

    It works on a copy of the fast tokenizer behind ``tokenizer`` with truncation and padding set
    once: a call of the tokenizer itself would set them anew and take half as long again.

    Args:
        tokenizer: A transformers tokenizer with a fast backend.
        max_length: Longest row in tokens; what is longer is truncated.
        names: Inputs that the model takes.
    """

    def __init__(self, tokenizer: Any, max_length: int, names: Sequence[str]) -> None:
        self.max_length = max_length
        self._names = [name for name in names if name in (*tokenizer.model_input_names, *names[:2])]
        self._backend: Tokenizer = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
        self._backend.enable_truncation(max_length)
        self._backend.enable_padding(
            pad_id=tokenizer.pad_token_id,
            pad_type_id=tokenizer.pad_token_type_id,
            pad_token=tokenizer.pad_token,
        )

    def __call__(self, texts: Sequence[Text], offsets: bool = False) -> TokenBatch:
        """Encodes texts or pairs of texts.

        Args:
            texts: At least one.
            offsets: Whether the encodings must know where in the text each token stands.
        """
        encode = self._backend.encode_batch if offsets else self._backend.encode_batch_fast
        encodings = encode(list(texts))
        inputs = {
            name: torch.tensor([getattr(e, _ATTRIBUTES[name]) for e in encodings])
            for name in self._names
        }
        return TokenBatch(inputs, encodings, self._backend, texts)


_ATTRIBUTES = {
    "input_ids": "ids",
    "attention_mask": "attention_mask",
    "token_type_ids": "type_ids",
}


def micro_batches(lengths: Sequence[int], rows: int) -> list[list[int]]:
    """Cuts a batch into parts of similar length.

    Args:
        lengths: Tokens of each row.
        rows: Rows of a part.

    Returns:
        The row numbers of each part, the longest rows first.
    """
    order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    return [order[at : at + rows] for at in range(0, len(order), rows)]
