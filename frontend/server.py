"""The life of the server process: startup, serve, shutdown.

A signal only sets an event. The first one lets accepted requests finish, for ``drain_timeout``
seconds at most; a second one ends the process at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

import marserve
from marserve.frontend.config import ServerConfig
from marserve.frontend.early_template import EarlyTemplates
from marserve.frontend.gpus import count_gpus
from marserve.frontend.logs import Logs, configure_logging
from marserve.frontend.pidfile import PidFile
from marserve.frontend.startup_models import load_startup_models, wanted_models
from marserve.frontend.store import ModelStore

if TYPE_CHECKING:
    from marserve.frontend.api.exchange import Services
    from marserve.frontend.assembly import Parts
    from marserve.frontend.grpc.server import GrpcServers
    from marserve.frontend.registry import Registry
    from marserve.frontend.workflows.registry import Workflows

_log = logging.getLogger(__name__)

STARTED = "Model server started."
_WORKERS_S = 5.0
_CLOSE_S = 15.0  # more than workers and last answers may take, one after the other


class Server:
    """One server.

    Args:
        config: Its settings.
        directory: Where its key file goes.
    """

    def __init__(self, config: ServerConfig, directory: Path) -> None:
        found = count_gpus(os.environ)
        limit = config.number_of_gpu
        gpus = found if limit is None else min(found, limit)
        self._config = replace(config, number_of_gpu=gpus)
        self._directory = directory
        self._stack = contextlib.AsyncExitStack()
        self._at_once: list[Callable[[], object]] = []
        self._stop = asyncio.Event()
        self._registry: Registry | None = None
        self._workflows: Workflows | None = None
        self._logs: Logs | None = None
        self._grpc: GrpcServers | None = None

    async def startup(self) -> None:
        """Opens logs and sockets, then loads the models named at start.

        Raises:
            MarserveError: If the server cannot start.
        """
        config = self._config
        self._watch_signals()
        pid_file = PidFile()
        pid_file.claim()
        self._closes(pid_file.release)
        logs = self._logs = configure_logging(config)
        self._closes(logs.close)
        _log.info("marserve %s, model store %s", marserve.__version__, config.model_store)
        for notice in config.notices:
            _log.warning("%s", notice)
        store = ModelStore(config)
        self._closes(store.close)
        wanted = list(wanted_models(config, store))
        early = EarlyTemplates(config, store, logs.worker)
        self._stack.push_async_callback(early.close)
        if wanted:
            early.begin(wanted[0].registration)  # it imports while this process imports, too
        assembly = await asyncio.to_thread(import_module, "marserve.frontend.assembly")
        parts: Parts = assembly.assemble(config, self._directory, logs, store, early, self._closes)
        parts.registry.starting = True
        await self._open_http(parts)
        registry, workflows = parts.registry, parts.workflows
        loading = load_startup_models(config, wanted, registry)
        await self._unless_stopped(_together(self._open_grpc(parts.services), loading))
        if not self._stop.is_set():
            entries = getattr(config.model_snapshot, "workflows", ())
            await self._unless_stopped(workflows.restore(entries))
        if not self._stop.is_set():
            await registry.snapshots.open()

    async def serve(self, report_ready: Callable[[], None] = lambda: None) -> None:
        """Says that the server is up, and returns once a signal asks it to stop.

        Args:
            report_ready: Called once the line that says so is written.
        """
        if self._logs is not None and not self._stop.is_set():
            if self._config.log_format == "json":
                _log.info("%s", STARTED)
            else:
                self._logs.console.append(f"{STARTED}\n")
            _log.info("listening on %s", ", ".join(self._addresses()))
            # Whoever waits for the start must then find the line; a full pipe must not hold us up.
            await asyncio.to_thread(self._logs.console.flush, 1.0)
            report_ready()
        await self._stop.wait()

    async def shutdown(self) -> None:
        """Finishes accepted requests, then ends workers, connections and files."""
        if self._grpc is not None:
            self._grpc.drain()
        if self._registry is not None:
            await self._registry.snapshots.close()
            limit_s = self._config.drain_timeout
            _log.info("stopping: accepted requests have %g s", limit_s)
            began = time.monotonic()
            if self._workflows is not None:  # whose later steps must still be accepted
                self._registry.draining = True
                await self._workflows.drain(limit_s)
            await self._registry.drain(max(0.0, limit_s - (time.monotonic() - began)))
        try:
            async with asyncio.timeout(_CLOSE_S):
                await self._stack.aclose()
        except TimeoutError:
            self._close_at_once()

    # -- parts -----------------------------------------------------------------------------------

    def _closes(self, close: Callable[[], object]) -> None:
        """Notes how a part is closed: in the reverse order, whatever happens, even in a hurry."""
        self._stack.callback(close)
        self._at_once.append(close)

    def _addresses(self) -> list[str]:
        config = self._config
        addresses = [config.inference_address, config.management_address]
        if config.enable_metrics_api:
            addresses.append(config.metrics_address)
        if self._grpc is not None:
            addresses += [config.grpc_address("inference"), config.grpc_address("management")]
        return list(dict.fromkeys(str(address) for address in addresses))

    async def _open_http(self, parts: Parts) -> None:
        """Listens, and notes how all is closed."""
        self._registry, self._workflows = parts.registry, parts.workflows
        self._at_once.append(_kill_children)
        self._stack.push_async_callback(parts.sites.close)
        self._stack.push_async_callback(self._close_grpc)
        # Before the connections: whose request a worker leaves undone still gets its error.
        self._stack.push_async_callback(_end_workers, parts.registry)
        self._at_once.append(parts.sites.remove_sockets)
        await parts.sites.bind()
        if parts.system is not None:
            self._stack.push_async_callback(parts.system.close)
            parts.system.start()

    async def _open_grpc(self, services: Services) -> None:
        """Imports grpc only now, and aside: HTTP answers meanwhile, and models load."""
        if self._config.enable_grpc:
            module = await asyncio.to_thread(import_module, "marserve.frontend.grpc.server")
            servers = self._grpc = module.GrpcServers(services)
            await servers.bind()

    async def _close_grpc(self) -> None:
        if self._grpc is not None:
            await self._grpc.close()

    async def _unless_stopped(self, work: Coroutine[Any, Any, None]) -> None:
        """Waits for some work, unless a signal comes first."""
        tasks = {asyncio.ensure_future(work), asyncio.ensure_future(self._stop.wait())}
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        for task in done:
            task.result()

    def _watch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled, number)

    def _signalled(self, number: int) -> None:
        if not self._stop.is_set():
            self._stop.set()
            return
        _log.warning("stopped a second time: ending at once")
        self._close_at_once()
        os._exit(128 + number)

    def _close_at_once(self) -> None:
        """Leaves nothing behind, without waiting for anything."""
        for close in reversed(self._at_once):
            with contextlib.suppress(Exception):
                close()
        self._at_once.clear()


async def _together(*works: Coroutine[Any, Any, None]) -> None:
    """Does some works at the same time; when one fails, the others are given up."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _end_workers(registry: Registry) -> None:
    """Ends the workers; what they still do has had its time to finish."""
    closing = asyncio.ensure_future(registry.close())
    done, _ = await asyncio.wait([closing], timeout=_WORKERS_S)
    if not done:
        _log.warning("workers that are still busy are killed")
        _kill_children()
    await closing


def _kill_children() -> None:
    """Workers that read their socket would see it close; those deep in a handler would not."""
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            process.kill()
