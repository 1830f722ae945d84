from pathlib import Path


def read_number(path: str) -> int:
    return int(Path(path).read_text())


def shout(text: str) -> str:
    return text.upper()
