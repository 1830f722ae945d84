"""Print an explanation as a table: how each word piece pulls towards or against the label."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

WIDTH = 24  # characters of the longest bar


def table(explanation: dict[str, Any]) -> str:
    """Return the words of one explanation with bars; special tokens are left out."""
    rows = [
        (word, importance)
        for word, importance in zip(explanation["words"], explanation["importances"], strict=True)
        if word not in ("[CLS]", "[SEP]", "[PAD]")
    ]
    longest = max((abs(importance) for _, importance in rows), default=0.0) or 1.0
    lines = []
    for word, importance in rows:
        bar = ("+" if importance > 0 else "-") * round(WIDTH * abs(importance) / longest)
        lines.append(f"  {word:<14}{importance:+.3f}  {bar}")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))))
