"""The server's side of a template process: asks it for workers and watches those it forked."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections.abc import Mapping, Sequence

from marserve.frontend.logs import WorkerLog
from marserve.frontend.process import MAX_LINE_BYTES, Output, SpawnedProcess, socket_pair
from marserve.worker import forking

_log = logging.getLogger(__name__)

_STATUS_WAIT_S = 1.0
_LAST_WAIT_S = 2.0


class ForkedProcess:
    """A worker that a template forked: no child of ours, so it is watched by a descriptor.

    Args:
        pid: Its process id.
        sock: Our end of the socket to it.
        output: Copies what it prints.
        status: Will be its exit status, as the template tells it.
    """

    def __init__(
        self, pid: int, sock: socket.socket, output: Output, status: asyncio.Future[int]
    ) -> None:
        self.pid = pid
        self.sock = sock
        self.tail = output.tail
        self._output = output
        self._status = status
        self._ended = asyncio.Event()
        self._watch: int | None = None
        try:
            self._watch = os.pidfd_open(pid)
        except ProcessLookupError:
            self._ended.set()  # it died young, and the template has reaped it
        else:
            asyncio.get_running_loop().add_reader(self._watch, self._see_end)

    def kill(self) -> None:
        """Ends it at once, stopped or not; never another process that got its number."""
        if self._watch is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._watch, signal.SIGKILL)

    async def exited(self) -> None:
        """Waits until it has ended."""
        await self._ended.wait()

    async def wait(self, timeout_s: float) -> int:
        """Returns the exit status; kills the process if it has not ended after ``timeout_s``."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._ended.wait()
        except TimeoutError:
            self.kill()
            await self._ended.wait()
        await self._output.end()
        done, _ = await asyncio.wait([self._status], timeout=_STATUS_WAIT_S)
        return self._status.result() if done else 1  # with its template gone nobody can tell

    def _see_end(self) -> None:
        if self._watch is not None:
            asyncio.get_running_loop().remove_reader(self._watch)
            os.close(self._watch)
            self._watch = None
        self._ended.set()


class Template:
    """A running template process; use ``start``."""

    def __init__(self, process: SpawnedProcess, log: WorkerLog) -> None:
        self._process = process
        self._log = log
        self._status_of: dict[str, asyncio.Future[int]] = {}
        self._statuses: dict[int, asyncio.Future[int]] = {}
        self._answers: dict[str, asyncio.Future[forking.Packet]] = {}
        self._lock = asyncio.Lock()
        self.alive = True
        process.sock.setblocking(False)
        asyncio.get_running_loop().add_reader(process.sock, self._receive)

    @classmethod
    async def start(
        cls, argv: Sequence[str], env: Mapping[str, str], name: str, log: WorkerLog
    ) -> Template:
        """Starts a template; tell it next what to import.

        Raises:
            OSError: If it cannot be started.
        """
        kind = socket.SOCK_SEQPACKET
        return cls(await SpawnedProcess.spawn(argv, env, name, log, kind), log)

    def anticipate(self, archive: str) -> None:
        """Has it import the libraries that a packed archive mentions, without waiting for it."""
        socket.send_fds(self._process.sock, [forking.encode(forking.Anticipate(archive))], [])

    async def preload(self, handler: str, model_dir: str) -> str:
        """Has it import a handler.

        Returns:
            Why it cannot fork workers; empty if it can.

        Raises:
            OSError: If it dies.
        """
        packet = forking.encode(forking.Preload(handler, model_dir))
        try:
            answer = await self._ask("preloaded", packet, [])
        except BaseException:
            self.close()
            self._process.kill()
            raise
        return answer.refusal if isinstance(answer, forking.Preloaded) else "no answer"

    async def fork(self, name: str, env: Mapping[str, str] | None = None) -> ForkedProcess:
        """Returns a new worker process.

        Args:
            name: Of the worker.
            env: Variables that it has besides the template's.

        Raises:
            OSError: If the template is gone.
        """
        # Made before the worker is: its end may be reported while we are busy with its beginning.
        status = self._status_of[name] = asyncio.get_running_loop().create_future()
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as given:
            sock, theirs = socket_pair()
            ours.callback(sock.close)
            given.callback(theirs.close)
            pipes = [_pipe(ours, given) for _ in ("stdout", "stderr")]
            fds = [theirs.fileno(), *(write_end for _, write_end in pipes)]
            try:
                answer = await self._ask(
                    name, forking.encode(forking.Fork(name, dict(env or {}))), fds
                )
            finally:
                self._status_of.pop(name, None)
            given.close()
            ours.pop_all()
        assert isinstance(answer, forking.Forked)  # noqa: S101  # that is what answers a Fork
        try:
            readers = [await _reader(read_end) for read_end, _ in pipes]
            streams, transports = zip(*readers, strict=True)
            output = Output(name, streams, self._log, transports)
            return ForkedProcess(answer.pid, sock, output, status)
        except BaseException:
            sock.close()  # the worker sees that and ends
            raise

    def close(self) -> None:
        """Lets the template end; the workers it forked live on."""
        if self.alive:
            self.alive = False
            asyncio.get_running_loop().remove_reader(self._process.sock)
            self._process.sock.close()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(ConnectionResetError("the template process is gone"))

    async def end(self) -> None:
        """Lets the template end and waits until it has."""
        self.close()
        await self._process.wait(_LAST_WAIT_S)

    async def abandon(self) -> None:
        """Ends a template that has forked nothing, whatever it is importing."""
        self.close()
        self._process.kill()
        await self._process.wait(_LAST_WAIT_S)

    async def _ask(self, key: str, packet: bytes, fds: list[int]) -> forking.Packet:
        if not self.alive:
            raise ConnectionResetError("the template process is gone")
        answer: asyncio.Future[forking.Packet] = asyncio.get_running_loop().create_future()
        self._answers[key] = answer
        try:
            socket.send_fds(self._process.sock, [packet], fds)
            return await answer
        finally:
            self._answers.pop(key, None)

    def _receive(self) -> None:
        try:
            data = self._process.sock.recv(forking.MAX_PACKET_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        message = forking.decode(data)
        if isinstance(message, forking.Exited):
            status = self._statuses.pop(message.pid, None)
            if status is not None and not status.done():
                status.set_result(message.status)
            return
        key = "preloaded"
        if isinstance(message, forking.Forked):
            key = message.name
            if key in self._status_of:
                self._statuses[message.pid] = self._status_of[key]
        answer = self._answers.get(key)
        if answer is not None and not answer.done():
            answer.set_result(message)


def _pipe(ours: contextlib.ExitStack, given: contextlib.ExitStack) -> tuple[int, int]:
    """Makes a pipe; each end is closed with its stack."""
    read_end, write_end = os.pipe()
    ours.callback(os.close, read_end)
    given.callback(os.close, write_end)
    return read_end, write_end


async def _reader(fd: int) -> tuple[asyncio.StreamReader, asyncio.ReadTransport]:
    reader = asyncio.StreamReader(limit=MAX_LINE_BYTES)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(fd, "rb", 0)
    )
    return reader, transport
