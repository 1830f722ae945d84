"""A template that imports what an archive mentions while the archive is still being unpacked."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from marserve.frontend.dependencies import PythonEnvironment
from marserve.frontend.logs import WorkerLog
from marserve.frontend.template import Template
from marserve.frontend.worker_environment import environment, template_command

if TYPE_CHECKING:
    from marserve.frontend.config import ServerConfig
    from marserve.frontend.registration import Registration
    from marserve.frontend.store import ModelStore

_log = logging.getLogger(__name__)


class EarlyTemplate:
    """Starts at once; whoever has it must ``take`` or ``drop`` it.

    Args:
        config: Of the server.
        python: The interpreter that the model will have unless its archive says otherwise.
        archive: Path of the packed archive.
        log: Receives what it prints.
    """

    def __init__(
        self, config: ServerConfig, python: PythonEnvironment, archive: Path, log: WorkerLog
    ) -> None:
        self.python = python
        self._starting = asyncio.create_task(self._start(config, archive, log))

    async def take(self) -> Template:
        """Returns the running template.

        Raises:
            OSError: If it could not be started.
        """
        return await self._starting

    async def drop(self) -> None:
        """Ends the template, which nobody has taken."""
        try:
            template = await self._starting
        except OSError:
            return  # there is none
        await template.abandon()

    async def _start(self, config: ServerConfig, archive: Path, log: WorkerLog) -> Template:
        env = environment(config, self.python, 1)
        command = template_command(self.python)
        template = await Template.start(command, env, f"T-{archive.stem}", log)
        template.anticipate(str(archive))
        return template


class EarlyTemplates:
    """Starts templates for archives whose workers will be wanted at once.

    Args:
        config: Of the server.
        store: Where the archives are.
        log: Receives what they print.
    """

    def __init__(self, config: ServerConfig, store: ModelStore, log: WorkerLog) -> None:
        self._config = config
        self._store = store
        self._log = log
        self._begun: dict[str, EarlyTemplate] = {}

    def begin(self, registration: Registration) -> None:
        """Starts the one of an archive that will be registered soon."""
        try:
            template = self._start(registration)
        except Exception as error:  # registering it will meet the same, and report it
            _log.debug("%s: no template ahead: %s", registration.url, error)
            return
        if template is not None:
            self._begun[registration.url] = template

    @asynccontextmanager
    async def taken(self, registration: Registration) -> AsyncIterator[EarlyTemplate | None]:
        """Gives the one of an archive, begun ahead or now; None if it would be of no use.

        Whoever fails meanwhile has not taken it: it is ended.
        """
        early = self._begun.pop(registration.url, None) or self._start(registration)
        try:
            yield early
        except BaseException:
            if early is not None:
                await early.drop()
            raise

    async def close(self) -> None:
        """Ends those that nobody took."""
        while self._begun:
            _, template = self._begun.popitem()
            await template.drop()

    def _start(self, registration: Registration) -> EarlyTemplate | None:
        config = self._config
        wanted = registration.initial_workers or config.default_workers_per_model
        if config.number_of_gpu or not (wanted or registration.at_startup):
            return None
        path = self._store.locate(registration.url)
        if path is None or path.suffix != ".mar":
            return None
        python = PythonEnvironment(config.python or sys.executable)
        return EarlyTemplate(config, python, path, self._log)
