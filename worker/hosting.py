"""An archive's handler hosted outside of a worker: by another server's process, or a script."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from marserve.archiver.unpack import open_directory
from marserve.handlers.context import Context
from marserve.handlers.metrics import HandlerMetrics
from marserve.worker import compat
from marserve.worker.execute import Executor
from marserve.worker.loader import load_handler
from marserve.worker.wire import Buffer, Part, Reply, Request


class HostedAnswer(NamedTuple):
    """The answer to one request.

    Args:
        status: As over HTTP.
        body: Of the answer; empty where there is an error.
        error: What went wrong; empty where nothing did.
    """

    status: int
    body: bytes
    error: str


class HostedArchive:
    """Runs the handler of an unpacked archive in this process.

    Args:
        directory: With the archive's files.
        gpu_id: Index of the device, None for the CPU.

    Raises:
        MarserveError: If the archive or its handler cannot be loaded.
    """

    def __init__(self, directory: str, gpu_id: int | None = None) -> None:
        compat.activate()
        archive = open_directory(Path(directory))
        model = archive.manifest.model
        metrics = HandlerMetrics(model.model_name, {})
        self._metrics = metrics
        self._context = Context(
            model.model_name,
            str(archive.directory),
            archive.manifest.as_dict(),
            archive.config.batch_size or 1,
            gpu_id,
            True,
            metrics,
            archive.config.raw,
        )
        handler = archive.config.use_handler or model.handler
        here = os.getcwd()
        os.chdir(archive.directory)  # handlers read their files from where they are
        try:
            handle = load_handler(handler, str(archive.directory), self._context)
        finally:
            os.chdir(here)
        self._executor = Executor(handle, self._context, _refuse_pieces)
        self._numbers = itertools.count()

    def answer(self, bodies: Sequence[bytes]) -> list[HostedAnswer]:
        """Runs one batch.

        Args:
            bodies: One a request: what a client would post.

        Returns:
            One answer a request, in their order.
        """
        requests = [
            Request(str(next(self._numbers)), "predict", {}, [Part("body", len(body))])
            for body in bodies
        ]
        answers = self._executor.run(requests, bytearray(b"".join(bodies)))
        self._metrics.drain()
        found = []
        for reply, data in answers:
            failure = reply.failure
            text = "" if failure is None else failure.message
            if failure is None and reply.status >= 400:
                text = bytes(data).decode(errors="replace") or f"status {reply.status}"
            found.append(HostedAnswer(reply.status, bytes(data), text))
        return found


def _refuse_pieces(reply: Reply, data: Buffer) -> None:
    raise RuntimeError("the handler sends its answer in pieces, which cannot be passed on here")
