"""From tokens to words: explanations whose importances are summed over the pieces of each word."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from marserve.handlers.tokens import TokenBatch

MERGED = "merged_"


def with_words(answer: dict[str, Any], batch: TokenBatch, row: int) -> dict[str, Any]:
    """Returns an explanation with its words beside its tokens.

    Special tokens are left out; they are part of no word.

    Args:
        answer: ``words``, which are tokens, and importances of them.
        batch: Tokens with offsets, and their texts.
        row: Which row of the batch it explains.

    Returns:
        The same, and after it ``merged_words`` and, for each list of importances, its sums:
        ``merged_importances``.
    """
    words = list(_words(batch, row))
    merged: dict[str, Any] = {f"{MERGED}words": [word for word, _ in words]}
    for name, values in answer.items():
        if name.startswith("importances"):
            merged[f"{MERGED}{name}"] = [sum(values[at] for at in places) for _, places in words]
    return {**answer, **merged}


def without_words(answer: dict[str, Any]) -> dict[str, Any]:
    """Returns an explanation as it was before ``with_words``."""
    return {name: value for name, value in answer.items() if not name.startswith(MERGED)}


def _words(batch: TokenBatch, row: int) -> Iterator[tuple[str, list[int]]]:
    """Words and the places of their tokens among those that are no padding."""
    encoding = batch.encodings[row]
    text: Any = batch.texts[row]
    last: tuple[int | None, int | None] | None = None
    span = (0, 0)
    places: list[int] = []
    for place, at in enumerate(batch.kept(row)):
        part, word = encoding.sequence_ids[at], encoding.word_ids[at]
        start, end = encoding.offsets[at]
        if part is None or word is None:
            continue
        source = text if isinstance(text, str) else text[part]
        if places and (part, word) == last and not _breaks(source, span, start, end):
            places.append(place)
            span = (span[0], max(span[1], end))
            continue
        if places:
            yield _spelled(text, last, span), places
        last, span, places = (part, word), (start, end), [place]
    if places:
        yield _spelled(text, last, span), places


def _breaks(source: str, span: tuple[int, int], start: int, end: int) -> bool:
    """Some tokenizers take the whole text for one word; white space ends a word all the same."""
    between = source[span[1] : start]
    return between.isspace() or source[start:end][:1].isspace()


def _spelled(text: Any, last: tuple[int | None, int | None] | None, span: tuple[int, int]) -> str:
    part = last[0] if last and last[0] is not None else 0
    source: str = text if isinstance(text, str) else text[part]
    return source[slice(*span)].strip()
