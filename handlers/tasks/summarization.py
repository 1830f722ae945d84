"""Summarization: a shorter text that says the same."""

from __future__ import annotations

from marserve.handlers.tasks.encoder_decoder import TextToText


class Summarization(TextToText):
    """Answers with the summary."""

    name = "summarization"


TASK = Summarization
