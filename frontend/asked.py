"""Where running models ask the server for other models: a socket in a private directory."""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from marserve.archiver.errors import MarserveError
from marserve.archiver.tensor_marks import STREAM
from marserve.frontend.api.http import new_request_id
from marserve.frontend.errors import BadRequest, ServeError
from marserve.frontend.types import Chunk
from marserve.frontend.v2.inference import Call, infer, stream
from marserve.frontend.v2.inside import chunk_of, infer_of, tensor_of
from marserve.worker import wire

if TYPE_CHECKING:
    from marserve.frontend.registry import Registry
    from marserve.frontend.store import ModelStore

_log = logging.getLogger(__name__)

_READ_BYTES = 1 << 16


class Asked:
    """Answers the questions of the workers.

    Args:
        registry: Of the models that are asked.
        store: Has a private directory for the socket.
    """

    def __init__(self, registry: Registry, store: ModelStore) -> None:
        self._registry = registry
        self._store = store
        self._directory = Path()
        self._server: asyncio.Server | None = None
        self._opening = asyncio.Lock()
        self._talks: set[asyncio.Task[None]] = set()

    async def open(self) -> str:
        """Listens, if it does not yet; returns what workers are told."""
        async with self._opening:
            if self._server is None:
                self._directory = self._store.new_directory()
                self._directory.mkdir(mode=0o700, parents=True)
                folder = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                try:  # by way of the directory, for a path to a socket must be short
                    path = f"/proc/self/fd/{folder}/{wire.ASK_SOCKET}"
                    self._server = await asyncio.start_unix_server(self._talk, path)
                finally:
                    os.close(folder)
        return str(self._directory)

    def close(self) -> None:
        """Listens no more; questions under way are given up."""
        if self._server is not None:
            self._server.close()
        for talk in self._talks:
            talk.cancel()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection: a question after the other."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  (a coroutine that runs has one)
        self._talks.add(task)
        decoder, ahead = wire.Decoder(), b""
        try:
            while data := ahead or await reader.read(_READ_BYTES):
                ahead = b""
                for message, body in decoder.feed(data):
                    if not isinstance(message, wire.Ask):
                        return
                    ahead += await self._answer(message, body, reader, writer)
        except asyncio.CancelledError:
            pass  # by close alone; and the loop would report it as an error of this callback
        except (wire.WireError, ConnectionError) as error:
            _log.warning("a model's question cannot be read: %s", error)
        finally:
            self._talks.discard(task)
            writer.close()

    async def _answer(
        self,
        ask: wire.Ask,
        body: bytearray,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bytes:
        """Answers one question; returns what was read of the next one."""
        ahead = b""
        try:
            if ask.command == "predict":
                passing = asyncio.ensure_future(self._pass_on(ask, body, writer))
                ahead = await watched(passing, reader)
                if not passing.cancelled():
                    passing.result()
                return ahead
            if ask.command == "ready":
                model = self._registry.resolve(ask.model, ask.version or None)
                fit = model.scaler.servable and not model.draining
                chunk = Chunk(status=200 if fit else 503)
            else:
                await self._change(ask)
                chunk = Chunk()
        except ServeError as error:
            chunk = error.chunk()
        except (MarserveError, msgspec.DecodeError) as error:
            chunk = BadRequest(str(error)).chunk()
        _write(writer, chunk)
        return ahead

    async def _change(self, ask: wire.Ask) -> None:
        repository = self._registry.repository
        repository.check_allowed()
        if ask.command == "unload":
            await repository.unload(ask.model, "dependents" in ask.headers)
        elif ask.command == "load":
            config = ask.headers.get("config")
            await repository.load(ask.model, msgspec.json.decode(config) if config else None)
        else:
            raise BadRequest(f"{ask.command:.100}: is nothing that can be asked")

    async def _pass_on(self, ask: wire.Ask, body: bytearray, writer: asyncio.StreamWriter) -> None:
        model = self._registry.route(ask.model, ask.version or None)
        tensors, at, view = [], 0, memoryview(body)
        for part in ask.parts:
            tensors.append(tensor_of(part, view[at : at + part.size]))
            at += part.size
        if not tensors:
            raise BadRequest("a request needs at least one input")
        streams = STREAM in ask.headers
        call = Call({}, new_request_id(), ask.timeout_s, bool(ask.version), streams)
        asked = infer_of(tensors, ask.headers)
        if not streams:
            _write(writer, chunk_of(await infer(self._registry.services(), model, asked, call)))
            return
        pieces = stream(self._registry.services(), model, asked, call)
        async with aclosing(pieces) as answers:
            async for answer in answers:
                _write(writer, chunk_of(answer))
                await writer.drain()


async def watched(passing: asyncio.Future[None], reader: asyncio.StreamReader) -> bytes:
    """Waits for an answer, and gives it up when the worker that asked has left.

    Returns:
        What was read of the next question: who has the last piece may ask at once, before this is
        told that it was written.
    """
    more = asyncio.ensure_future(reader.read(1))
    both: list[asyncio.Future[Any]] = [passing, more]
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if _came(more):
            await asyncio.wait([passing])
    finally:
        more.cancel()
        if not passing.done():
            passing.cancel()
        await asyncio.wait(both)  # two cannot read at once
    return _came(more)


def _came(more: asyncio.Future[bytes]) -> bytes:
    """What was read; nothing at the end, and where reading failed or was called off."""
    if not more.done() or more.cancelled() or more.exception() is not None:
        return b""
    return more.result()


def _write(writer: asyncio.StreamWriter, chunk: Chunk) -> None:
    reply = wire.Reply(
        "", chunk.status, len(chunk.body), chunk.last, chunk.phrase, chunk.headers, chunk.failure
    )
    writer.writelines(wire.encode(wire.Replies([reply]), [chunk.body] if chunk.body else []))
