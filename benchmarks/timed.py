"""The transformer handler, with its own time in a header of each answer."""

from __future__ import annotations

import time
from typing import Any

from marserve.handlers.transformer import TransformerHandler


class TimedHandler(TransformerHandler):
    """Says how long the batch of an answer took without a server, and how large it was."""

    def handle(self, data: list[Any], context: Any) -> list[Any]:
        """Answers a batch, tokenizing included."""
        begin = time.perf_counter()
        results = super().handle(data, context)
        took_ms = (time.perf_counter() - begin) * 1e3
        for index in range(len(data)):
            context.set_response_header(index, "X-Model-Ms", f"{took_ms:.4f}")
            context.set_response_header(index, "X-Batch", str(len(data)))
        return results
