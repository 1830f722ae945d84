"""Loads the models that the settings name, while the server already listens."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from marserve.archiver.errors import MarserveError
from marserve.frontend.registration import Registration
from marserve.frontend.registry import Registry

if TYPE_CHECKING:
    from marserve.frontend.config import ServerConfig
    from marserve.frontend.store import ModelStore

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A model to load, and whether its version is to answer by default."""

    name: str | None
    url: str
    default: bool = False


async def load_startup_models(config: ServerConfig, store: ModelStore, registry: Registry) -> None:
    """Registers all models named at start; what fails is a warning, the rest goes on."""
    wanted = list(_wanted(config, store))
    # Unpacking and loading keep a core busy each: more at a time would only make all of them late.
    turns = asyncio.Semaphore(max(2, os.cpu_count() or 1))

    async def load(item: _Wanted) -> None:
        async with turns:
            await _load(item, registry)

    await asyncio.gather(*(load(item) for item in wanted))


def _wanted(config: ServerConfig, store: ModelStore) -> Iterator[_Wanted]:
    if config.model_snapshot:
        for name, versions in config.model_snapshot.items():
            for defaults in versions.values():
                if defaults.mar_name is not None:
                    yield _Wanted(name, defaults.mar_name, defaults.default_version)
        return
    for item in config.load_models or ():
        if item.url == "ALL" and item.name is None:
            yield from (_Wanted(None, name) for name in store.available())
        else:
            yield _Wanted(item.name, item.url)


async def _load(item: _Wanted, registry: Registry) -> None:
    what = f"{item.name}={item.url}" if item.name else item.url
    try:
        registration = Registration(item.url, model_name=item.name, at_startup=True)
        registered = await registry.register(registration)
        model = registered.model
        if item.default:
            registry.set_default(model.name, model.version)
    except MarserveError as error:
        _log.warning("%s is not served: %s", what, error)
    except Exception:
        _log.warning("%s is not served", what, exc_info=True)
    else:
        if registered.ready:
            text = "model %s %s is served with %d workers"
            _log.info(text, model.name, model.version, registered.workers)
        else:
            cause = model.pool.last_error or "its workers are still starting"
            _log.warning("model %s %s has no worker yet: %s", model.name, model.version, cause)
