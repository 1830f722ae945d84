"""Translation: the same text in another language."""

from __future__ import annotations

from marserve.handlers.tasks.encoder_decoder import TextToText


class Translation(TextToText):
    """Answers with the translation; ``prefix`` says to models of many languages which one."""

    name = "translation"


TASK = Translation
