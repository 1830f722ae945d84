"""Questions of a running model to the server that it runs in: what is asked, what is answered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn

from marserve.archiver.errors import MarserveError


class NobodyToAsk(MarserveError):
    """The server cannot be reached."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked.

    Args:
        command: ``predict``, or one about models: ``ready``, ``load``, ``unload``.
        model: Name of the model that is asked, or asked about.
        version: Empty for the one that answers by default.
        parts: Name, media type and bytes of each part of a request.
        headers: Of the request.
        timeout_s: None for the model's own limit.
    """

    command: str
    model: str
    version: str = ""
    parts: list[tuple[str, str, Any]] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of an answer.

    Args:
        status: As over HTTP.
        headers: Of the answer.
        body: Its bytes.
        failure: Why there is no answer; empty where there is one.
        last: Whether no more will come.
    """

    status: int
    headers: dict[str, str]
    body: bytes | bytearray
    failure: str
    last: bool


Ask = Callable[[Question], Iterator[Piece]]


def ask_nobody(question: Question) -> NoReturn:
    """Refuses every question, where no server is told of.

    Raises:
        NobodyToAsk: Always.
    """
    raise NobodyToAsk(f"{question.model}: there is no server to ask")
