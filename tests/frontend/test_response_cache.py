"""Kept answers: what they depend on, and how much memory they may take."""

from __future__ import annotations

import itertools
from typing import Any

from marserve.archiver.tensor_marks import ID, MARK, PARAMETERS, WANTED
from marserve.frontend.response_cache import ResponseCache, key_of
from marserve.frontend.types import Chunk, InferenceRequest
from marserve.worker.wire import Part


class Nowhere:
    def send(self, chunk: Chunk) -> None:
        raise AssertionError("nothing is answered here")


def request(
    tensors: dict[str, bytes], kind: str = f"{MARK}UINT8 2", **headers: str
) -> InferenceRequest:
    names = {"parameters": PARAMETERS, "id": ID, "wanted": WANTED}
    parts = [Part(name, len(raw), kind) for name, raw in tensors.items()]
    given = {PARAMETERS: "{}"} | {names.get(name, name): value for name, value in headers.items()}
    return InferenceRequest("r", "predict", given, parts, list(tensors.values()), Nowhere())


def key(*args: Any, generation: bytes = b"m 1", **more: Any) -> bytes | None:
    return key_of(request(*args, **more), generation)


def test_a_key_tells_all_that_an_answer_depends_on() -> None:
    keys = [
        key({"a": b"xy", "b": b"zz"}),
        key({"a": b"xy", "b": b"zz"}, generation=b"m 2"),
        key({"a": b"xy", "c": b"zz"}),
        key({"a": b"zz", "b": b"xy"}),
        key({"a": b"xyz", "b": b"z"}),
        key({"a": b"xy", "b": b"zz"}, kind=f"{MARK}INT8 2"),
        key({"a": b"xy", "b": b"zz"}, kind=f"{MARK}UINT8 2,1"),
        key({"a": b"xy", "b": b"zz"}, parameters='{"p": 1}'),
        key({"a": b"xy", "b": b"zz"}, wanted='["o"]'),
    ]

    assert None not in keys
    assert len(set(keys)) == len(keys)


def test_and_nothing_else() -> None:
    plain = key({"a": b"xy", "b": b"zz"})

    assert plain == key({"b": b"zz", "a": b"xy"})
    assert plain == key({"a": b"xy", "b": b"zz"}, id="77")
    assert plain == key({"a": b"xy", "b": b"zz"}, accept="*/*")


def test_what_is_never_kept() -> None:
    assert key({"a": b"xy"}, parameters='{"sequence_id": 3}') is None
    assert key({"body": b"xy"}, kind="text/plain") is None
    assert key({}) is None


def test_the_memory_is_bounded_and_the_least_used_goes_first() -> None:
    cache = ResponseCache(5000)
    for number in range(3):
        cache.put(bytes([number]), Chunk(b"x" * 1000))
    assert cache.get(b"\x00") is not None
    cache.put(b"\x03", Chunk(b"x" * 1000))

    assert [bytes([n]) in cache for n in range(4)] == [True, False, True, True]
    assert cache.size_bytes <= 5000
    cache.put(b"big", Chunk(b"x" * 6000))
    assert b"big" not in cache
    cache.drop([bytes([n]) for n in range(4)])
    assert (len(cache), cache.size_bytes) == (0, 0)


def test_kept_answers_are_copies() -> None:
    cache = ResponseCache(5000)
    body = bytearray(b"abc")
    cache.put(b"k", Chunk(body, headers={"h": "1"}))
    body[:] = b"xyz"

    kept = cache.get(b"k")

    assert kept is not None
    assert (bytes(kept.body), kept.headers) == (b"abc", {"h": "1"})
    for _ in itertools.repeat(None, 3):
        cache.put(b"k", Chunk(b"other"))
    assert cache.size_bytes < 2000
