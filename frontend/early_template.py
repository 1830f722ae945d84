"""A template that imports what an archive mentions while the archive is still being unpacked."""

from __future__ import annotations

import asyncio
import sys
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
        await template.end()

    async def _start(self, config: ServerConfig, archive: Path, log: WorkerLog) -> Template:
        env = environment(config, self.python, 1)
        command = template_command(self.python)
        template = await Template.start(command, env, f"T-{archive.stem}", log)
        template.anticipate(str(archive))
        return template


def early_template(
    config: ServerConfig, store: ModelStore, registration: Registration, log: WorkerLog
) -> EarlyTemplate | None:
    """Starts a template for an archive whose workers will be wanted at once; else returns None."""
    wanted = registration.initial_workers or config.default_workers_per_model
    if config.number_of_gpu or not (wanted or registration.at_startup):
        return None
    path = store.locate(registration.url)
    if path is None or path.suffix != ".mar":
        return None
    return EarlyTemplate(config, PythonEnvironment(config.python or sys.executable), path, log)
