"""Questions of workers: what is read of the next one while one is answered is not lost."""

from __future__ import annotations

import asyncio

import pytest

from marserve.frontend.asked import watched


async def test_a_question_that_is_there_when_the_answer_is_written_is_kept() -> None:
    reader = asyncio.StreamReader()
    passing: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def answer() -> None:
        passing.set_result(None)
        reader.feed_data(b"next")

    asyncio.get_running_loop().call_soon(answer)
    ahead = await watched(passing, reader)

    assert ahead + await reader.read(8) == b"next"


async def test_a_question_that_comes_first_calls_nothing_off() -> None:
    reader = asyncio.StreamReader()
    passing: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    reader.feed_data(b"next")
    asyncio.get_running_loop().call_later(0.05, passing.set_result, None)

    ahead = await watched(passing, reader)

    assert ahead + await reader.read(8) == b"next"
    assert not passing.cancelled()


@pytest.mark.parametrize("broken", [False, True])
async def test_a_worker_that_has_left_calls_its_question_off(broken: bool) -> None:
    reader = asyncio.StreamReader()
    passing: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    reader.set_exception(ConnectionResetError()) if broken else reader.feed_eof()

    assert await watched(passing, reader) == b""
    assert passing.cancelled()
