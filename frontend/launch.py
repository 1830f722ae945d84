"""Starts workers for a model: which interpreter, which environment, which device, which message."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from marserve.frontend.dependencies import PythonEnvironment
from marserve.frontend.early_template import EarlyTemplate
from marserve.frontend.gpus import device_of, devices
from marserve.frontend.in_flight import InFlight
from marserve.frontend.logs import WorkerLog
from marserve.frontend.process import ChildProcess, SpawnedProcess
from marserve.frontend.rank_launch import RankLauncher
from marserve.frontend.ranks import plan_ranks
from marserve.frontend.template import Template
from marserve.frontend.worker_environment import (
    compute_threads,
    environment,
    template_command,
    worker_command,
)
from marserve.frontend.workers import LoadError, Worker
from marserve.worker import wire

if TYPE_CHECKING:
    from marserve.frontend.config import ServerConfig
    from marserve.frontend.model import Model
    from marserve.frontend.pool import Slot

_log = logging.getLogger(__name__)


class Launcher:
    """Spawns the workers of one model.

    Args:
        config: Of the server.
        python: The interpreter, with the model's own packages.
        handler: Handler string.
        log: Receives what workers print.
        numbers: Gives each worker a number of its own.
        early: A template that has been importing since before the archive was unpacked.
        asked_at: Where its model may ask the server for other models; empty for nowhere.
    """

    def __init__(
        self,
        config: ServerConfig,
        python: PythonEnvironment,
        handler: str,
        log: WorkerLog,
        numbers: Iterator[int],
        early: EarlyTemplate | None = None,
        asked_at: str = "",
    ) -> None:
        self._asked_at = asked_at
        self._config = config
        self._python = python
        self._handler = handler
        self._log = log
        self._numbers = numbers
        self._starting = asyncio.Lock()
        self._template: Template | None = None
        self._refusal = ""
        self._early = early

    async def start(self, model: Model, slot: Slot) -> Worker:
        """Spawns a process and has it load the model; it is the slot's worker from the start.

        Raises:
            LoadError: If it cannot.
        """
        number = next(self._numbers)
        name = f"W-{number}-{model.name}_{model.version}"
        in_flight = InFlight(model.settings.concurrency, timed=not model.settings.asynchronous)
        worker = slot.worker = Worker(name, number, model, in_flight)
        limit_s = model.settings.startup_timeout_s
        try:
            async with asyncio.timeout(limit_s):  # the imports of a template count too
                await self._bring_up(model, worker)
        except TimeoutError:
            text = f"the worker did not load the model within startupTimeout ({limit_s:g} s)"
            raise LoadError(text) from None
        model.loaded(worker, worker.started_at)
        return worker

    async def _bring_up(self, model: Model, worker: Worker) -> None:
        """Loads a worker, or leaves no process: also if it is cancelled at any point."""
        plan = plan_ranks(model.archive.config, len(self._gpus(model)))
        load = self._load(model, worker.number)
        try:
            if plan is not None:
                ranks = RankLauncher(
                    model, plan, self._gpus(model), lambda *rank: self._process(model, *rank)
                )
                await ranks.bring_up(worker, load)
                return
            process = await self._process(model, worker.name)
        except OSError as error:
            cause = error.strerror or error
            raise LoadError(f"the worker cannot be started: {cause}") from error
        try:
            await worker.load(process, load)
        except BaseException:
            process.kill()
            await worker.end(1.0)
            raise

    async def close(self) -> None:
        """Ends the template process, if there is one."""
        if self._early is not None:
            await self._early.drop()
        if self._template is not None:
            await self._template.end()

    async def _process(
        self, model: Model, name: str, env: Mapping[str, str] | None = None
    ) -> ChildProcess:
        """Forks a worker from the model's template if that is possible, else spawns one."""
        if self._gpu(model, 0) is None and not self._refusal:
            try:
                template = await self._ready_template(model)
                if template is not None:
                    return await template.fork(name, env)
            except OSError as error:
                _log.warning("%s: its template process is of no use: %s", name, error)
        env = environment(self._config, self._python, model.pool.size) | dict(env or {})
        return await SpawnedProcess.spawn(worker_command(self._python), env, name, self._log)

    async def _ready_template(self, model: Model) -> Template | None:
        """Returns the running template, started if need be; None if workers must be spawned."""
        async with self._starting:
            if self._template is not None and self._template.alive:
                return self._template
            name = f"T-{model.name}_{model.version}"
            self._template = await self._new_template(model, name)
            self._refusal = await self._template.preload(
                self._handler, str(model.archive.directory)
            )
            if self._refusal:
                _log.info("%s: workers are spawned, not forked: %s", name, self._refusal)
                await self._template.end()
                return None
            return self._template

    async def _new_template(self, model: Model, name: str) -> Template:
        early, self._early = self._early, None
        if early is not None:
            if early.python == self._python:
                return await early.take()
            await early.drop()  # the archive turned out to have an environment of its own
        env = environment(self._config, self._python, model.pool.size)
        return await Template.start(template_command(self._python), env, name, self._log)

    def _load(self, model: Model, number: int) -> wire.Load:
        config, archive = self._config, model.archive
        return wire.Load(
            model_name=model.name,
            model_version=model.version,
            model_dir=str(archive.directory),
            handler=self._handler,
            manifest=archive.manifest.as_dict(),
            model_config=archive.config.raw,
            batch_size=model.settings.batch_size,
            gpu_id=self._gpu(model, number),
            envelope=config.service_envelope or None,
            limit_max_image_pixels=config.limit_max_image_pixels,
            decode_input_request=config.decode_input_request,
            max_response_bytes=config.max_response_size,
            threads=_threads(model, len(self._gpus(model))),
            metrics_config=model.metrics_config,
            tracebacks=config.debug_errors,
            asked_at=self._asked_at,
        )

    def _gpu(self, model: Model, number: int) -> int | None:
        return device_of(number, self._gpus(model))

    def _gpus(self, model: Model) -> tuple[int, ...]:
        """The devices that the model may use; none if it runs on the CPU."""
        on_cpu = model.archive.config.device_type == "cpu"
        count = 0 if on_cpu else self._config.number_of_gpu or 0
        return devices(count, model.settings.device_ids)


def _threads(model: Model, gpus: int) -> int:
    """Compute threads of one process of a worker."""
    plan = plan_ranks(model.archive.config, gpus)
    if plan is None:
        return compute_threads(model.pool.size)
    return plan.threads or compute_threads(model.pool.size * plan.processes)
