"""``ts.handler_utils.hf_batch_streamer``, as handlers import it."""

from __future__ import annotations

from marserve.handlers.batch_streamer import TextIteratorStreamerBatch

__all__ = ["TextIteratorStreamerBatch"]
