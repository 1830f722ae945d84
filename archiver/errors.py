"""The errors of marserve.

    MarserveError             root; its text is fit for a user's eyes
    ├── ArchiveError          an archive cannot be written, read or trusted
    ├── ConfigError           a configuration file or value is wrong
    └── HandlerLoadError      a handler, its weights or its tokenizer cannot be loaded

What a running server answers is mapped in ``marserve.frontend.errors``; what a handler may raise to
answer one request is in ``marserve.handlers.errors``.
"""

from __future__ import annotations


class MarserveError(Exception):
    """Root of all errors raised on purpose; the text names what, where and the remedy."""


class ArchiveError(MarserveError):
    """An archive cannot be written, read or trusted."""


class HandlerLoadError(MarserveError):
    """A handler, its weights or its tokenizer cannot be loaded."""


class ConfigError(MarserveError):
    """A configuration file or value is wrong.

    Args:
        where: File, and the key or path in it, such as ``model-config.yaml: $.batchSize``.
        reason: What is wrong, with the value that was found.
        hint: What would be right, or an empty string.
    """

    def __init__(self, where: str, reason: str, hint: str = "") -> None:
        self.where = where
        self.reason = reason
        self.hint = hint
        super().__init__(f"{where}: {reason}" + (f" ({hint})" if hint else ""))
