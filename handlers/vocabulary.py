"""The vocabulary of a bag-of-words model: ``source_vocab.pt`` in its archive."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from marserve.archiver.errors import HandlerLoadError

UNKNOWN = "<unk>"


class Vocabulary:
    """Token to index, and back.

    Args:
        tokens: In the order of their indices.
    """

    def __init__(self, tokens: Sequence[str]) -> None:
        self._tokens = list(tokens)
        self._indices = {token: index for index, token in enumerate(self._tokens)}
        self._unknown = self._indices.get(UNKNOWN, 0)

    def __len__(self) -> int:
        return len(self._tokens)

    def __getitem__(self, token: str) -> int:
        return self._indices.get(token, self._unknown)

    def lookup_indices(self, tokens: Sequence[str]) -> list[int]:
        """Returns the index of every token; of one that is not known, that of ``<unk>``."""
        return [self[token] for token in tokens]

    def lookup_token(self, index: int) -> str:
        """Returns the token of an index."""
        return self._tokens[index]


def load_vocabulary(path: Path) -> Vocabulary:
    """Reads a vocabulary.

    Args:
        path: Saved by ``torch.save``: a mapping of token to index, or a list of tokens.

    Raises:
        HandlerLoadError: If there is no such file, or something else in it.
    """
    if not path.is_file():
        raise HandlerLoadError(f"the archive has no {path.name}: pack it with --extra-files")
    try:
        return Vocabulary(_tokens(torch.load(path, map_location="cpu", weights_only=True)))
    except (pickle.UnpicklingError, RuntimeError, ValueError, TypeError, EOFError) as error:
        reason = str(error).partition("\n")[0][:200]
        raise HandlerLoadError(
            f"{path.name}: holds no plain vocabulary ({reason}); an object of torchtext can be read"
            " by torchtext alone, which is no longer made: save vocabulary.get_stoi() in its place"
        ) from error


def _tokens(plain: Any) -> list[str]:
    if isinstance(plain, Mapping):
        if sorted(plain.values()) != list(range(len(plain))):
            raise ValueError("its indices are not 0 to the number of tokens")
        return sorted((str(token) for token in plain), key=lambda token: int(plain[token]))
    if isinstance(plain, list) and all(isinstance(token, str) for token in plain):
        return plain
    raise TypeError(f"expected a mapping of token to index, got {type(plain).__name__}")
