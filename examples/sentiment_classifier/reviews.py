"""The IMDB reviews as clean, unique, shuffled (text, label) pairs with a fixed held-out part."""

from __future__ import annotations

import csv
import random
import re
from dataclasses import dataclass
from pathlib import Path

LABELS = {"negative": 0, "positive": 1}
HELD_OUT = 2000
TAIL_WORDS = 36
_SPLIT_SEED = 20240


@dataclass(frozen=True, slots=True)
class Review:
    """One review.

    Args:
        text: The review without markup.
        label: 0 negative, 1 positive.
    """

    text: str
    label: int

    def tail(self) -> Review:
        """Return its last words: short texts, and where reviewers say what they think."""
        return Review(" ".join(self.text.split()[-TAIL_WORDS:]), self.label)


def read_reviews(file: Path) -> list[Review]:
    """Read the CSV; a text that occurs twice is kept once, so that no split leaks."""
    unique: dict[str, int] = {}
    with file.open(encoding="utf-8", newline="") as source:
        for row in csv.DictReader(source):
            text = re.sub(r"<br\s*/?>", " ", row["review"])
            unique.setdefault(" ".join(text.split()), LABELS[row["sentiment"]])
    reviews = [Review(text, label) for text, label in sorted(unique.items())]
    random.Random(_SPLIT_SEED).shuffle(reviews)
    return reviews


def split(reviews: list[Review], train_size: int) -> tuple[list[Review], list[Review]]:
    """Return the training part and the held-out part; the latter is always the same."""
    return reviews[HELD_OUT : HELD_OUT + train_size], reviews[:HELD_OUT]
