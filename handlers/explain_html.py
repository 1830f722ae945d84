"""Explanations to look at: the words of a text, coloured by how much each of them counted."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from marserve.handlers.explain_words import MERGED

CONTENT_TYPE = "text/html; charset=utf-8"
_FOR, _AGAINST = "46, 160, 67", "218, 54, 51"
_PREFIX = f"{MERGED}importances"
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Explanation</title>
<style>
body {{ font: 1rem/2.2 sans-serif; max-width: 50rem; margin: 2rem auto; padding: 0 1rem; }}
h2 {{ font-size: 1rem; margin: 1rem 0 0; }}
span {{ padding: 0.2rem 0.3rem; border-radius: 0.3rem; }}
p.note {{ color: #666; font-size: 0.85rem; line-height: 1.4; }}
</style>
</head>
<body>
{body}
<p class="note">Green words speak for the answer, red ones against it; the fuller the colour, the
more. Point at a word for its number.</p>
</body>
</html>
"""


def wants_html(headers: Mapping[str, str]) -> bool:
    """Tells whether a client prefers a page to JSON: it names ``text/html`` first of the two."""
    accepted = next((value for name, value in headers.items() if name.lower() == "accept"), "")
    kinds = [kind.partition(";")[0].strip().lower() for kind in accepted.split(",")]
    page = kinds.index("text/html") if "text/html" in kinds else len(kinds)
    return page < (kinds.index("application/json") if "application/json" in kinds else len(kinds))


def render(answer: Mapping[str, Any]) -> str:
    """Returns the page of one explanation.

    Args:
        answer: An explanation with its words, as ``with_words`` returns it.
    """
    words = answer[f"{MERGED}words"]
    sections = []
    for name, values in answer.items():
        if not name.startswith(_PREFIX):
            continue
        what = name.removeprefix(_PREFIX).strip("_").replace("_", " ") or _title(answer)
        largest = max((abs(value) for value in values), default=0.0) or 1.0
        spans = [_span(word, value, largest) for word, value in zip(words, values, strict=True)]
        sections.append(f"<h2>{escape(what)}</h2>\n<p>{' '.join(spans)}</p>")
    return _PAGE.format(body="\n".join(sections))


def _title(answer: Mapping[str, Any]) -> str:
    target = answer.get("target")
    return "Importance of words" if target is None else f"Importance of words for {target}"


def _span(word: str, value: float, largest: float) -> str:
    colour = _FOR if value >= 0 else _AGAINST
    strength = round(abs(value) / largest, 3)
    style = f"background: rgba({colour}, {strength})"
    return f'<span style="{style}" title="{value:.4f}">{escape(word)}</span>'
