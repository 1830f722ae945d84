"""Steps that make a text plain before a bag-of-words model reads it."""

from __future__ import annotations

import re
import string
import unicodedata

CLEANUP_REGEX = re.compile(r"<[^>]*>|&(?:[a-z0-9]+|#[0-9]{1,6}|#x[0-9a-f]{1,6});", re.IGNORECASE)

_IRREGULAR = {
    "won't": "will not",
    "can't": "cannot",
    "shan't": "shall not",
    "ain't": "is not",
    "let's": "let us",
    "y'all": "you all",
    "ma'am": "madam",
    "o'clock": "of the clock",
    "'cause": "because",
    "'tis": "it is",
    "'twas": "it was",
}
_ENDINGS = {
    "n't": " not",
    "'re": " are",
    "'ve": " have",
    "'ll": " will",
    "'d": " would",
    "'m": " am",
}
_IS = ("it", "he", "she", "that", "what", "who", "where", "there", "here", "how", "when", "why")
_IRREGULAR_REGEX = re.compile(
    r"(?<!\w)(?:" + "|".join(map(re.escape, _IRREGULAR)) + r")(?!\w)", re.IGNORECASE
)
_ENDINGS_REGEX = re.compile(
    r"(?<=\w)(?:" + "|".join(map(re.escape, _ENDINGS)) + r")(?!\w)", re.IGNORECASE
)
_IS_REGEX = re.compile(r"\b(" + "|".join(_IS) + r")'s\b", re.IGNORECASE)
_TOKEN_REGEX = re.compile(r"[.,()!?]|[^\s.,()!?\"';:]+|'")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def remove_html_tags(text: str) -> str:
    """Returns a text without tags and entities."""
    return CLEANUP_REGEX.sub("", text)


def expand_contractions(text: str) -> str:
    """Returns an English text with ``don't`` as ``do not`` and its like."""
    text = text.replace("’", "'")  # noqa: RUF001 - the typographic apostrophe is meant
    text = _IRREGULAR_REGEX.sub(lambda found: _IRREGULAR[found[0].lower()], text)
    text = _ENDINGS_REGEX.sub(lambda found: _ENDINGS[found[0].lower()], text)
    return _IS_REGEX.sub(r"\1 is", text)


def remove_accented_characters(text: str) -> str:
    """Returns a text in ASCII: letters without their accents, nothing for what has no such form."""
    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()


def remove_punctuation(text: str) -> str:
    """Returns a text without ASCII punctuation."""
    return text.translate(_PUNCTUATION)


def tokenize(text: str) -> list[str]:
    """Returns the words of an English text in lower case; marks between sentences stand alone."""
    return _TOKEN_REGEX.findall(text.lower())


def ngrams(tokens: list[str], most: int) -> list[str]:
    """Returns the tokens, then all runs of two, of three ... up to ``most``, joined by spaces."""
    out = list(tokens)
    for count in range(2, most + 1):
        out += [" ".join(tokens[i : i + count]) for i in range(len(tokens) - count + 1)]
    return out
