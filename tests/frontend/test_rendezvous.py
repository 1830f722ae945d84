"""Standing still for a lone request's answer: when, and what becomes of the bytes."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from marserve.frontend.rendezvous import CALM, QUICK_S, REST, WORTH, Rendezvous, write_now


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        yield ours, theirs


def calm() -> Rendezvous:
    rendezvous = Rendezvous()
    for _ in range(CALM):
        assert not rendezvous.is_worth_it(True, 0.0)
    return rendezvous


def test_lone_quick_requests_are_awaited() -> None:
    assert calm().is_worth_it(True, 0.0)


def test_slow_handlers_are_not() -> None:
    assert not calm().is_worth_it(True, QUICK_S)


def test_company_ends_it() -> None:
    rendezvous = calm()

    assert not rendezvous.is_worth_it(False, 0.0)
    assert not rendezvous.is_worth_it(True, 0.0)


def test_what_is_there_is_read(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    rendezvous, buffer = calm(), bytearray(8)
    theirs.send(b"answer")

    assert rendezvous.wait(ours, memoryview(buffer)) == 6
    assert buffer.startswith(b"answer")
    assert rendezvous.is_worth_it(True, 0.0)


def test_a_wait_in_vain_is_followed_by_a_rest(pair: tuple[socket.socket, socket.socket]) -> None:
    rendezvous = calm()

    assert rendezvous.wait(pair[0], memoryview(bytearray(8))) == 0
    assert not any(rendezvous.is_worth_it(True, 0.0) for _ in range(CALM - REST))
    assert rendezvous.is_worth_it(True, 0.0)


def test_rests_grow_while_waits_are_in_vain(pair: tuple[socket.socket, socket.socket]) -> None:
    rendezvous, rests = calm(), []
    for _ in range(3):
        rendezvous.wait(pair[0], memoryview(bytearray(8)))
        rests.append(1)
        while not rendezvous.is_worth_it(True, 0.0):
            rests[-1] += 1

    assert rests == [CALM - REST + 1, CALM - 2 * REST + 1, CALM - 4 * REST + 1]


def test_company_does_not_shorten_the_rest(pair: tuple[socket.socket, socket.socket]) -> None:
    rendezvous = calm()
    rendezvous.wait(pair[0], memoryview(bytearray(8)))

    rendezvous.is_worth_it(False, 0.0)

    assert not any(rendezvous.is_worth_it(True, 0.0) for _ in range(CALM - REST))


def test_one_in_vain_among_many_good_ones_is_no_rest(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    rendezvous, buffer = calm(), memoryview(bytearray(8))
    for _ in range(WORTH):
        theirs.send(b"a")
        assert rendezvous.wait(ours, buffer)

    assert rendezvous.wait(ours, buffer) == 0
    assert rendezvous.is_worth_it(True, 0.0)
    assert rendezvous.wait(ours, buffer) == 0
    assert not rendezvous.is_worth_it(True, 0.0)


async def test_lingering_for_nobody_ends_and_is_in_vain() -> None:
    rendezvous = calm()

    rendezvous.linger()
    await rendezvous.rested.wait()

    assert not rendezvous.is_worth_it(True, 0.0)


async def test_lingering_for_the_next_request_is_worth_it() -> None:
    rendezvous = calm()

    rendezvous.linger()
    assert rendezvous.is_worth_it(True, 0.0)
    await rendezvous.rested.wait()

    assert rendezvous.is_worth_it(True, 0.0)


def test_a_broken_socket_is_left_to_the_event_loop(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    theirs.close()

    assert write_now(ours, [b"lost"]) == [b"lost"]
    assert calm().wait(ours, memoryview(bytearray(8))) == 0


def test_all_that_the_socket_does_not_take_is_left(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    message = [b"head", b"", bytes(range(256)) * 8192, b"tail"]
    left = write_now(ours, message)

    assert 0 < sum(map(len, left)) < sum(map(len, message))
    theirs.setblocking(False)
    received, rest = bytearray(), b"".join(left)
    while rest or len(received) < sum(map(len, message)):
        received += drain(theirs)
        if rest:
            rest = b"".join(write_now(ours, [rest]))
    assert bytes(received) == b"".join(message)


def drain(sock: socket.socket) -> bytes:
    chunks = []
    while True:
        try:
            chunks.append(sock.recv(1 << 20))
        except BlockingIOError:
            return b"".join(chunks)
