"""Loads the models that the settings name, while the server already listens."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from marserve.archiver.errors import MarserveError
from marserve.archiver.mlserver_settings import server_notices
from marserve.frontend.config_kinds import LoadItem
from marserve.frontend.model_defaults import ModelDefaults
from marserve.frontend.registration import Registration

if TYPE_CHECKING:
    from marserve.frontend.config import ServerConfig
    from marserve.frontend.model import Model
    from marserve.frontend.registry import Registry
    from marserve.frontend.store import ModelStore

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A model to load; from a snapshot, also its version and what else that says of it."""

    registration: Registration
    version: str | None = None
    defaults: ModelDefaults | None = None


async def load_startup_models(
    config: ServerConfig, wanted: Sequence[Wanted], registry: Registry
) -> None:
    """Registers all models named at start; what fails is a warning, the rest goes on.

    The registry is no longer ``starting`` then.
    """
    for line in server_notices(Path(config.model_store)) if wanted and config.model_store else ():
        _log.warning("%s", line)
    # Unpacking and loading keep a core busy each: more at a time would only make all of them late.
    turns = asyncio.Semaphore(max(2, os.cpu_count() or 1))

    async def load(item: Wanted) -> Model | None:
        async with turns:
            return await _load(item, registry)

    try:
        loaded = await asyncio.gather(*(load(item) for item in wanted))
    finally:
        registry.starting = False
    registry.repository.settle_defaults()
    registry.repository.start_polling()
    restored = [
        (model, item.defaults)
        for model, item in zip(loaded, wanted, strict=True)
        if model is not None and item.defaults is not None
    ]
    _restore_routing(restored, registry)


def wanted_models(config: ServerConfig, store: ModelStore) -> Iterator[Wanted]:
    """The models of a snapshot; beside it only what was never served when it was written."""
    snapshot = config.model_snapshot
    known: set[str] = set()
    for name, versions in snapshot.items():
        for version, defaults in versions.items():
            url = defaults.url or defaults.mar_name
            if url is not None:
                known.add(url)
                yield Wanted(_restoration(name, url, defaults), version, defaults)
    if snapshot and not config.restored_models:
        return  # named in a file by hand: it stands for load_models
    known |= getattr(snapshot, "unregistered", frozenset())
    named = config.load_models
    if named is None and config.model_control_mode != "explicit":
        named = (LoadItem(None, "ALL"),)
    for item in named or ():
        everything = item.url == "ALL" and item.name is None
        names = store.available() if everything else store.versions_at(item.url)
        for url in names:
            if url not in known:
                yield Wanted(Registration(url, model_name=item.name, at_startup=True))


def _restoration(name: str, url: str, defaults: ModelDefaults) -> Registration:
    least, most = defaults.min_workers, defaults.max_workers
    workers = None if least is None else (least, least if most is None else most)
    return Registration(
        url,
        model_name=name,
        handler=defaults.handler,
        batch_size=defaults.batch_size,
        max_batch_delay=defaults.max_batch_delay,
        response_timeout=defaults.response_timeout,
        startup_timeout=defaults.startup_timeout,
        workers=workers,
        at_startup=True,
    )


def _restore_routing(restored: Sequence[tuple[Model, ModelDefaults]], registry: Registry) -> None:
    """Default versions first: to set one ends the traffic rules of its model."""
    for model, defaults in restored:
        if defaults.default_version:
            registry.set_default(model.name, model.version)
    weights: dict[str, dict[str, float]] = {}
    shadows: dict[str, str] = {}
    for model, defaults in restored:
        if defaults.traffic_weight is not None:
            weights.setdefault(model.name, {})[model.version] = defaults.traffic_weight
        if defaults.shadow:
            shadows[model.name] = model.version
    for name in weights.keys() | shadows.keys():
        try:
            registry.direct(name, weights.get(name), shadows.get(name))
        except MarserveError as error:
            _log.warning("the traffic rules of %s are not restored: %s", name, error)


async def _load(item: Wanted, registry: Registry) -> Model | None:
    """Returns the model, also one whose workers cannot load yet; None if it cannot be served."""
    wanted = item.registration
    what = f"{wanted.model_name}={wanted.url}" if wanted.model_name else wanted.url
    try:
        registered = await registry.register(wanted)
    except MarserveError as error:
        _log.warning("%s is not served: %s", what, error)
        return None
    except Exception:
        _log.warning("%s is not served", what, exc_info=True)
        return None
    model = registered.model
    if item.version not in (None, model.version):
        text = "%s has the version %s; the snapshot names %s"
        _log.warning(text, what, model.version, item.version)
    if registered.ready:
        text = "model %s %s is served with %d workers"
        _log.info(text, model.name, model.version, registered.workers)
    else:
        cause = model.pool.last_error or "its workers are still starting"
        _log.warning("model %s %s has no worker yet: %s", model.name, model.version, cause)
    return model
