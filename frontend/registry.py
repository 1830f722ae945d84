"""Which models are served, in which versions, and which version answers by default."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from marserve.frontend.asked import Asked
from marserve.frontend.building import Builder
from marserve.frontend.claims import Claims
from marserve.frontend.early_template import EarlyTemplate, EarlyTemplates
from marserve.frontend.errors import (
    BadRequest,
    Conflict,
    InternalError,
    ModelNotFound,
    OutOfResources,
    ServiceUnavailable,
    VersionInUse,
    VersionNotFound,
)
from marserve.frontend.logs import WorkerLog
from marserve.frontend.metrics import Telemetry
from marserve.frontend.model import Model
from marserve.frontend.registration import Registered, Registration, identity
from marserve.frontend.repository import Repository
from marserve.frontend.retiring import askers_first, retire
from marserve.frontend.snapshot_writer import SnapshotWriter
from marserve.frontend.store import ModelStore
from marserve.frontend.versions import Versions

if TYPE_CHECKING:
    from marserve.frontend.api.exchange import Services
    from marserve.frontend.config import ServerConfig

_log = logging.getLogger(__name__)


class Registry:
    """All served models.

    Args:
        config: Of the server.
        store: Finds and unpacks archives.
        telemetry: Receives counts and times.
        log: Receives what workers print.
        early: Templates that were started ahead.
    """

    def __init__(
        self,
        config: ServerConfig,
        store: ModelStore,
        telemetry: Telemetry,
        log: WorkerLog,
        early: EarlyTemplates,
    ) -> None:
        self._config = config
        self._store = store
        self._telemetry = telemetry
        self._early = early
        self._names: dict[str, Versions] = {}
        self._claims = Claims()
        self.strict = config.compat == "strict"
        self.repository = Repository(self, config, store)
        self._asked = Asked(self, store)
        self._builder = Builder(self, config, telemetry, log, self._asked)
        self.snapshots = SnapshotWriter(config, lambda: self._names)
        self.draining = False
        self.starting = False  # set while the models named at start are loaded
        self._services: Services | None = None

    def serve(self, services: Services) -> None:
        """Lets models ask each other, by way of V2 inference."""
        self._services = services

    def services(self) -> Services:
        """Returns what V2 inference works with.

        Raises:
            ServiceUnavailable: If the server has not begun to serve.
        """
        if self._services is None:
            raise ServiceUnavailable("The server is not serving yet.", retry_after_s=1)
        return self._services

    # -- look-ups --------------------------------------------------------------------------------

    def resolve(self, name: str, version: str | None = None) -> Model:
        """Returns a version of a model, the default one if none is given.

        Raises:
            ModelNotFound: If there is no model of that name.
            ServiceUnavailable: If there is none any more, because the server stops.
            VersionNotFound: If it has no such version.
        """
        versions = self._names.get(name)
        if versions is None:
            if self.draining:
                raise ServiceUnavailable("The server is being stopped.", retry_after_s=1)
            raise ModelNotFound(f"Model not found: {name}")
        model = versions.models.get(version or versions.default)
        if model is None:
            raise VersionNotFound(f"Model version: {version} does not exist for model: {name}")
        return model

    def route(self, name: str, version: str | None = None) -> Model:
        """Returns the version that a request for inference goes to.

        Like ``resolve``, but where no version is named, the traffic rules have their say.

        Raises:
            ModelNotFound: If there is no model of that name.
            ServiceUnavailable: If there may be one soon, or is none because the server stops.
            VersionNotFound: If it has no such version.
        """
        versions = self._names.get(name)
        if versions is not None and versions.split is not None and version is None:
            return versions.route(versions.split)
        try:
            return self.resolve(name, version)
        except (ModelNotFound, VersionNotFound):
            if not self.starting:
                raise
        text = f"Model {name} is not here yet: the server is still loading its models."
        raise ServiceUnavailable(text, retry_after_s=1)

    def default_models(self) -> list[Model]:
        """Returns the default version of every model, by name."""
        return [v.models[v.default] for _, v in sorted(self._names.items())]

    def versions(self, name: str) -> list[Model]:
        """Returns all versions of a model.

        Raises:
            ModelNotFound: If there is no model of that name.
        """
        self.resolve(name)
        return list(self._names[name].models.values())

    def is_default(self, model: Model) -> bool:
        """Tells whether a version answers where none is given."""
        versions = self._names.get(model.name)
        return versions is not None and versions.default == model.version

    def healthy(self) -> bool:
        """Tells whether every model has, or is about to have, the workers it needs."""
        models = self.default_models()
        return all(m.pool.hopeful >= m.min_workers or m.scaler.dormant for m in models)

    def ready(self) -> bool:
        """Tells whether every model that wants workers has one that serves, or only sleeps."""
        unfit = self.draining or self.starting
        return not unfit and all(m.scaler.servable for m in self.default_models())

    # -- changes ---------------------------------------------------------------------------------

    async def register(self, registration: Registration) -> Registered:
        """Unpacks an archive and starts its workers.

        Returns:
            At once if the caller does not wait; the workers go on starting.

        Raises:
            Conflict: If that version is registered already.
            InternalError: If the workers cannot be started; the model is not registered then.
        """
        async with self._early.taken(registration) as early:
            model = await self._unpack(registration, early)
        name, version = model.name, model.version
        self._names.setdefault(name, Versions(version)).add(model)
        registered = await self._start(model, registration)
        await self.snapshots.save()
        return registered

    async def scale(
        self, name: str, version: str | None, min_workers: int, max_workers: int | None, wait: bool
    ) -> bool:
        """Changes how many workers a version has.

        Args:
            name: Of the model.
            version: None for the default one.
            min_workers: Fewer are added to.
            max_workers: More are taken away from; None for as many as ``min_workers``.
            wait: Whether to return only when they are up, or cannot be.

        Returns:
            Whether the wanted workers are up.

        Raises:
            BadRequest: If the numbers make no sense.
        """
        model = self.resolve(name, version)
        maximum = min_workers if max_workers is None else max_workers
        if min_workers < 0:
            raise BadRequest(f"min_worker: expected an integer >= 0, got {min_workers}")
        if maximum < min_workers:
            raise BadRequest("max_worker cannot be less than min_worker.")
        await model.scale(min_workers, maximum)
        await self.snapshots.save()
        if wait:
            return await model.pool.settled(min_workers)
        return model.pool.ready >= min_workers

    def set_default(self, name: str, version: str) -> None:
        """Lets a version answer where none is given.

        Raises:
            VersionNotFound: If there is no such version.
        """
        self.resolve(name)
        if version not in self._names[name].models:
            raise VersionNotFound(f"Model version {version} does not exist for model {name}")
        self._names[name].set_default(version)
        self.snapshots.changed()

    def traffic(self, name: str) -> Versions:
        """Returns the versions of a model with their traffic rules.

        Raises:
            ModelNotFound: If there is no model of that name.
        """
        self.resolve(name)
        return self._names[name]

    def direct(self, name: str, weights: Mapping[str, float] | None, shadow: str | None) -> None:
        """Sets the traffic rules of a model, as ``Versions.direct`` does."""
        self.traffic(name).direct(weights, shadow, self._telemetry)
        self.snapshots.changed()

    async def unregister(self, name: str, version: str | None) -> None:
        """Ends a version's workers, once they have answered what they have, and forgets it.

        Raises:
            VersionInUse: If it is the default one and there are others.
            CleanupTimeout: If its workers take too long.
        """
        model = self.resolve(name, version)
        versions = self._names[name]
        if model.version == versions.default and len(versions.models) > 1:
            raise VersionInUse(f"Cannot remove default version for model {name}")
        versions.remove(model.version)
        if not versions.models:
            del self._names[name]
        await self.snapshots.save()
        await retire(model, self._store, self._config.unregister_model_timeout)

    async def replace(self, name: str, registrations: Sequence[Registration]) -> None:
        """Serves other versions under a name than until now, or the same ones loaded anew.

        Until the workers of all of them are up, the old ones answer; from then on the new ones,
        while the old ones answer what they had. So no request finds the name absent.

        Args:
            name: Of the model.
            registrations: Of its versions; each waits for its workers.

        Raises:
            Conflict: If two of them are the same version.
            InternalError: If workers cannot be started; the old versions stay then.
            CleanupTimeout: If the old ones take too long to answer what they had.
        """
        fresh: list[Model] = []
        try:
            for registration in registrations:
                model = await self._unpack(registration, None, anew=True)
                fresh.append(model)
                if any(model.version == each.version for each in fresh[:-1]):
                    raise Conflict(f"Model version {model.version} is there twice for model {name}")
                await self._start(model, registration)
        except BaseException:
            await asyncio.gather(*(self._forget(model) for model in fresh))
            raise
        before = self._names.get(name)
        self._names[name] = after = Versions(fresh[0].version)
        for model in fresh:
            after.add(model)
        old = [] if before is None else before.succeeded_by(after)
        await self.snapshots.save()
        limit_s = self._config.unregister_model_timeout
        await asyncio.gather(*(retire(model, self._store, limit_s) for model in old))

    async def drain(self, timeout_s: float) -> None:
        """Accepts nothing more and waits until all accepted requests are answered."""
        self.draining = True
        try:
            async with asyncio.timeout(timeout_s):
                for models in askers_first(self._all()):
                    await asyncio.gather(*(m.drain() for m in models))
        except TimeoutError:
            _log.warning("requests were still running %.3g s after the stop", timeout_s)

    async def close(self) -> None:
        """Ends all workers."""
        self.draining = True
        self._asked.close()
        models = self._all()
        self._names.clear()
        await asyncio.gather(*(m.close() for m in models))
        for model in models:
            await self._store.release(model.archive, "")  # the next start finds the file of a URL

    # -- parts -----------------------------------------------------------------------------------

    def _all(self) -> list[Model]:
        return [m for v in self._names.values() for m in v.models.values()]

    async def _unpack(
        self, registration: Registration, early: EarlyTemplate | None, *, anew: bool = False
    ) -> Model:
        """Makes a model of an archive; nothing of it is left if that fails."""
        archive = registration.archive or await self._store.fetch(
            registration.url, reuse=registration.at_startup
        )
        with ExitStack() as claim:  # held until a failed one has left nothing
            try:
                name, version = identity(registration, archive)
                versions = None if anew else self._names.get(name)
                claim.enter_context(self._claims.hold(name, version, versions))
                return await self._builder.build(name, version, registration, archive, early)
            except BaseException:
                await self._store.release(archive, registration.url)
                raise

    async def _start(self, model: Model, registration: Registration) -> Registered:
        wanted = model.settings.min_workers
        await model.scale(wanted, model.settings.max_workers)
        if wanted and not registration.synchronous and not registration.at_startup:
            return Registered(model, wanted, False)
        ready = not wanted or await model.pool.settled(wanted)
        if ready or registration.at_startup:
            return Registered(model, wanted, ready)
        cause = model.pool.last_error
        await self._forget(model)
        kind = OutOfResources if cause is not None and cause.memory else InternalError
        text = f"Failed to start workers for model {model.name} version: {model.version}"
        raise kind(f"{text}. Cause: {cause}" if cause is not None else text)

    async def _forget(self, model: Model) -> None:
        versions = self._names.get(model.name)
        if versions is not None and versions.models.get(model.version) is model:
            versions.remove(model.version)
            if not versions.models:
                del self._names[model.name]
        await model.close()
        await self._store.release(model.archive, model.url)
