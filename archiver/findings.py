"""What a review found: a place, what will happen there, and the remedy."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import yaml

Level = Literal["error", "note"]

_CONFIG_PLACE = re.compile(
    r"(?P<file>[^:\s]+\.(?:ya?ml|json)): (?P<key>\$[^:\s]*): (?P<text>.*)", re.DOTALL
)
_CODE_PLACE = re.compile(r"(?P<file>[^:\s]+): line (?P<line>\d+): (?P<text>.*)", re.DOTALL)
_FILE_PLACE = re.compile(r"(?P<file>[\w./-]+\.\w+): (?P<text>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that will not work, or will behave differently.

    Args:
        level: ``error`` for what will not work.
        text: What will happen, and why.
        remedy: What to do about it; may be empty.
        file: In which file; inside an archive, its name there.
        line: From 1; 0 where there is none.
        container: The archive that the file is in; empty for none.
    """

    level: Level
    text: str
    remedy: str = ""
    file: str = ""
    line: int = 0
    container: str = ""

    def render(self) -> str:
        """Returns a line for people, and a second one with the remedy."""
        file = f"{self.file}:{self.line}" if self.line else self.file
        place = ": ".join(part for part in (self.container, file) if part)
        text = f"{place}: {self.level}: {self.text}" if place else f"{self.level}: {self.text}"
        return f"{text}\n    remedy: {self.remedy}" if self.remedy else text

    def inside(self, container: str) -> Finding:
        """Returns the finding as one in a file of an archive."""
        return replace(self, container=container)

    def as_dict(self) -> dict[str, Any]:
        """Returns plain values for JSON."""
        return asdict(self)


def from_messages(messages: Iterable[str], level: Level, sources: dict[str, str]) -> list[Finding]:
    """Makes findings of messages that name file and key, or file and line, at their beginning.

    Args:
        messages: As ``checks.check_files`` reports them.
        level: Of all of them.
        sources: Content of the YAML and JSON files, by name: a key is looked up there for its line.
    """
    found = []
    for message in messages:
        if match := _CONFIG_PLACE.fullmatch(message):
            line = key_line(sources.get(match["file"], ""), match["key"])
            text = f"{match['key'].removeprefix('$.')}: {match['text']}"
            found.append(Finding(level, text, file=match["file"], line=line))
        elif match := _CODE_PLACE.fullmatch(message):
            line = int(match["line"])
            found.append(Finding(level, match["text"], file=match["file"], line=line))
        elif match := _FILE_PLACE.fullmatch(message):
            found.append(Finding(level, match["text"], file=match["file"]))
        else:
            found.append(Finding(level, message))
    return found


def key_line(source: str, key: str) -> int:
    """Returns the line of a key such as ``$.handler.mode`` in a YAML text, 0 if it is not there.

    Of a path that does not exist to its end, the line of the last key that does is returned.
    """
    try:
        node = yaml.compose(source, yaml.SafeLoader)
    except (yaml.YAMLError, ValueError, RecursionError):
        return 0
    line = 0
    for name in re.findall(r"[^.\[\]$]+", key):
        if not isinstance(node, yaml.MappingNode):
            break
        for at, value in node.value:
            if at.value == name:
                line, node = at.start_mark.line + 1, value
                break
        else:
            break
    return line
