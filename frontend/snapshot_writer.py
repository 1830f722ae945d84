"""Writes a snapshot after each change of the models: off the event loop, once for many changes."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marserve.frontend.snapshots import Kind, describe_models, settings_text, write_snapshot
from marserve.frontend.urls import is_url

if TYPE_CHECKING:
    from marserve.frontend.config import ServerConfig
    from marserve.frontend.versions import Versions

_log = logging.getLogger(__name__)


class SnapshotWriter:
    """The snapshots of one server.

    A failed write is a warning: a full disk must not stop models from being served.

    Args:
        config: Of the server; with ``config_snapshots=off`` nothing is ever written.
        names: Returns all names with their versions.

    Attributes:
        workflows: Returns what is to be remembered of each workflow.
    """

    def __init__(self, config: ServerConfig, names: Callable[[], Mapping[str, Versions]]) -> None:
        self._config = config
        self._names = names
        self.workflows: Callable[[], list[dict[str, Any]]] = list
        self._open = False
        self._dirty = False
        self._task: asyncio.Task[None] | None = None
        self._seen: set[str] = set(getattr(config.model_snapshot, "unregistered", ()))

    async def open(self) -> None:
        """Writes the first snapshot, and from now on one after each change.

        Before, while the models named at start load, a snapshot would lose those still to come.
        """
        self._open = self._config.config_snapshots != "off"
        if self._open:
            await self._write("startup")

    def changed(self) -> None:
        """Notes that the models have changed; never waits."""
        if not self._open:
            return
        self._dirty = True
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._write_all())

    async def save(self) -> None:
        """Notes that the models have changed; returns when a file says so, or cannot be written."""
        self.changed()
        await self._written()

    async def _written(self) -> None:
        while self._task is not None and not self._task.done():
            await asyncio.shield(self._task)

    async def close(self) -> None:
        """Writes the last snapshot; changes that come later are those of a server that ends."""
        if self._open:
            self._open = False
            await self._written()
            await self._write("shutdown")

    async def _write_all(self) -> None:
        while self._dirty:
            self._dirty = False
            await self._write("snapshot")

    async def _write(self, kind: Kind) -> None:
        names = self._names()
        models = [model for versions in names.values() for model in versions.models.values()]
        urls = {model.url for model in models if model.workflow is None and model.url}
        gone = await asyncio.to_thread(_startable, self._config, self._seen - urls)
        self._seen = urls | gone
        document = describe_models(names, gone, self.workflows())
        settings = settings_text(self._config)
        try:
            await asyncio.to_thread(
                write_snapshot, self._config.log_location, kind, settings, document
            )
        except OSError as error:
            _log.warning("the %s snapshot cannot be written: %s", kind, error)


def _startable(config: ServerConfig, urls: set[str]) -> set[str]:
    """Those of some archives that a start like this one would load.

    Only these must be remembered as unregistered, so what is remembered does not grow for ever.
    """
    named = {item.url for item in config.load_models or ()}
    if "ALL" not in named:
        return urls & named
    store = Path(config.model_store)
    return {
        url
        for url in urls
        if not is_url(url) and not os.path.isabs(url) and os.path.lexists(store / url)
    }
