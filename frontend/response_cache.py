"""Answers to V2 requests kept for the same request, in a bounded part of the memory."""

from __future__ import annotations

import hashlib
import itertools
import time
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

from marserve.archiver.tensor_marks import ID, MARK, PARAMETERS, REQUEST_HEADERS
from marserve.frontend.ensembles import Ensemble
from marserve.frontend.model import Model
from marserve.frontend.types import Chunk, InferenceRequest, Sink

_KEY_HEADERS = [name for name in REQUEST_HEADERS if name != ID]
_OVERHEAD_BYTES = 512  # of an entry beside its body
_FEW_KEYS = 1000
_generations = itertools.count()


class ResponseCache:
    """Answers by key; the one that was of no use for longest goes first.

    Args:
        most_bytes: Of all answers together.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._answers: OrderedDict[bytes, Chunk] = OrderedDict()
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._answers)

    def __contains__(self, key: bytes) -> bool:
        return key in self._answers

    def get(self, key: bytes) -> Chunk | None:
        """Returns the answer of a key, None if it is not there."""
        chunk = self._answers.get(key)
        if chunk is not None:
            self._answers.move_to_end(key)
        return chunk

    def put(self, key: bytes, chunk: Chunk) -> None:
        """Keeps an answer, unless it alone is larger than all may be."""
        size = _size(chunk)
        if size > self._most_bytes or key in self._answers:
            return
        self._answers[key] = Chunk(bytes(chunk.body), chunk.status, headers=dict(chunk.headers))
        self.size_bytes += size
        while self.size_bytes > self._most_bytes:
            _, gone = self._answers.popitem(last=False)
            self.size_bytes -= _size(gone)

    def drop(self, keys: Iterable[bytes]) -> None:
        """Forgets answers."""
        for key in keys:
            chunk = self._answers.pop(key, None)
            if chunk is not None:
                self.size_bytes -= _size(chunk)


def _size(chunk: Chunk) -> int:
    return len(chunk.body) + _OVERHEAD_BYTES + sum(map(len, chunk.headers.values()))


def key_of(request: InferenceRequest, generation: bytes) -> bytes | None:
    """Returns what tells a request from all that may have another answer.

    Args:
        request: Of tensors.
        generation: Tells the model, its version and its files from all others.

    Returns:
        None for what is never kept: requests of no tensors, of a sequence, or for explanations.
    """
    if request.command != "predict" or not request.parts:
        return None
    if "sequence_id" in request.headers.get(PARAMETERS, ""):
        return None
    told: list[Any] = [generation]
    for part in sorted(request.parts, key=lambda part: part.name):
        if not (part.content_type or "").startswith(MARK):
            return None
        told.append((part.name, part.content_type, part.size))
    told += [request.headers.get(name) for name in _KEY_HEADERS]
    digest = hashlib.blake2b(repr(told).encode(), digest_size=32)
    both = zip(request.parts, request.bodies, strict=True)
    for _, body in sorted(both, key=lambda pair: pair[0].name):
        digest.update(body)
    return digest.digest()


class _Keeping:
    """Stands before a request's sink and keeps the answer that goes by, if it is one and whole."""

    def __init__(self, sink: Sink, model: _Cached, key: bytes) -> None:
        self._sink = sink
        self._model = model
        self._key = key
        self._first = True

    def send(self, chunk: Chunk) -> None:
        whole = self._first and chunk.last
        self._first = False
        if whole and chunk.failure is None and 200 <= chunk.status < 300:
            self._model.keep(self._key, chunk)
        self._sink.send(chunk)


class _Cached:
    """What a model with a cache does besides.

    Attributes:
        cache: Of all models; set by who makes the model.
        hits: Requests that were answered from the cache, and nanoseconds that took.
        misses: Requests that were not.
    """

    cache: ResponseCache
    hits = (0, 0)
    misses = (0, 0)

    def begin_caching(self, cache: ResponseCache, name: str, version: str, digest: str) -> None:
        """Says where answers are kept."""
        self.cache = cache
        # A model that is loaded anew begins with nothing, whatever its files say.
        self._generation = repr((next(_generations), name, version, digest)).encode()
        self._keys: set[bytes] = set()

    def keep(self, key: bytes, chunk: Chunk) -> None:
        """Keeps an answer."""
        self.cache.put(key, chunk)
        self._keys.add(key)
        if len(self._keys) > 2 * len(self.cache) + _FEW_KEYS:
            self._keys = {each for each in self._keys if each in self.cache}

    def look_up(self, request: InferenceRequest) -> bool:
        """Answers a request from the cache, or sees to it that its answer is kept."""
        begin = time.perf_counter_ns()
        key = key_of(request, self._generation)
        if key is None:
            return False
        chunk = self.cache.get(key)
        took = time.perf_counter_ns() - begin
        if chunk is None:
            self.misses = (self.misses[0] + 1, self.misses[1] + took)
            request.sink = _Keeping(request.sink, self, key)
            return False
        self.hits = (self.hits[0] + 1, self.hits[1] + took)
        request.queued_at = request.sent_at = time.monotonic()
        request.send(Chunk(chunk.body, chunk.status, headers=dict(chunk.headers)))
        return True

    def forget(self) -> None:
        """Drops all answers of this model."""
        self.cache.drop(self._keys)


class CachedModel(_Cached, Model):
    """A model whose answers are kept."""

    def submit(self, request: InferenceRequest) -> None:
        """Accepts a request; its answer goes to its sink, maybe at once."""
        if self.draining or not self.look_up(request):
            super().submit(request)

    async def close(self, at_once: bool = False) -> None:
        """Ends all workers, and forgets all answers."""
        await super().close(at_once)
        self.forget()


class CachedEnsemble(_Cached, Ensemble):
    """An ensemble whose answers are kept."""

    def submit(self, request: InferenceRequest) -> None:
        """Accepts a request; its answer goes to its sink, maybe at once."""
        if self.draining or not self.look_up(request):
            super().submit(request)

    async def close(self, at_once: bool = False) -> None:
        """Forgets all answers."""
        await super().close(at_once)
        self.forget()
