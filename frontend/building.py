"""A model made of an archive: its settings, its Python environment, and what runs its requests."""

from __future__ import annotations

import itertools
import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from marserve.frontend.asked import Asked
from marserve.frontend.auto_complete import completed_by_model
from marserve.frontend.dependencies import prepare_python
from marserve.frontend.ensembles import ENSEMBLE_HANDLER, Ensemble
from marserve.frontend.errors import InvalidModel
from marserve.frontend.launch import Launcher
from marserve.frontend.model import Model
from marserve.frontend.model_defaults import ModelDefaults
from marserve.frontend.response_cache import CachedEnsemble, CachedModel, ResponseCache
from marserve.frontend.settings import resolve_settings

if TYPE_CHECKING:
    from marserve.archiver.unpack import Archive
    from marserve.frontend.config import ServerConfig
    from marserve.frontend.early_template import EarlyTemplate
    from marserve.frontend.logs import WorkerLog
    from marserve.frontend.metrics import Telemetry
    from marserve.frontend.registration import Registration
    from marserve.frontend.registry import Registry

_log = logging.getLogger(__name__)

ASKING = ("triton_python", "triton_decoupled")
"""Handlers whose models may ask the server for other models."""
_KINDS: dict[tuple[bool, bool], type[Model]] = {
    (False, False): Model,
    (False, True): Ensemble,
    (True, False): CachedModel,
    (True, True): CachedEnsemble,
}
"""By whether answers are kept, and whether it is an ensemble."""


class Builder:
    """Makes models.

    Args:
        registry: Knows the models that a model may ask.
        config: Of the server.
        telemetry: Receives counts and times.
        log: Receives what workers print.
        asked: Answers the questions of models.
    """

    def __init__(
        self,
        registry: Registry,
        config: ServerConfig,
        telemetry: Telemetry,
        log: WorkerLog,
        asked: Asked,
    ) -> None:
        self._registry = registry
        self._config = config
        self._telemetry = telemetry
        self._log = log
        self._asked = asked
        limit = config.response_cache_size
        self._cache = ResponseCache(limit) if limit else None
        self._worker_numbers = itertools.count(config.initial_worker_port)

    async def build(
        self,
        name: str,
        version: str,
        registration: Registration,
        archive: Archive,
        early: EarlyTemplate | None,
    ) -> Model:
        """Returns a model that has no workers yet.

        Raises:
            InvalidModel: If the archive cannot be served, or what it needs cannot be installed.
        """
        python = await prepare_python(archive, self._config)
        archive = await completed_by_model(archive, python, self._config)
        own = archive.config.use_handler or archive.manifest.model.handler
        handler = registration.handler or own or self._config.default_service_handler
        if not handler:
            raise InvalidModel(f"Model {name}: the archive names no handler, and none was given.")
        properties = self._config.models.get(name, {}).get(version, ModelDefaults())
        settings = resolve_settings(registration, archive.config, properties, self._config)
        for line in archive.config.warnings:
            _log.warning("%s %s: %s", name, version, line)
        asked_at = await self._asked.open() if handler in ASKING else ""
        launcher = Launcher(
            self._config, python, handler, self._log, self._worker_numbers, early, asked_at
        )
        cached, ensemble = bool(archive.config.response_cache), handler == ENSEMBLE_HANDLER
        if ensemble:
            settings = replace(settings, min_workers=0, max_workers=0)
        kind = _KINDS[cached and self._cache is not None, ensemble]
        model = kind(
            name,
            version,
            registration.url,
            archive,
            settings,
            launcher.start,
            self._telemetry,
            launcher.close,
            strict=self._registry.strict,
            loaded_at_startup=registration.at_startup,
        )
        model.workflow = registration.workflow
        if isinstance(model, CachedModel | CachedEnsemble) and self._cache is not None:
            model.begin_caching(self._cache, name, version, archive.digest)
        if isinstance(model, Ensemble):
            model.find, model.services = self._registry.route, self._registry.services
        return model
