"""The model store as a repository: models loaded and unloaded by name, all of their versions."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marserve.archiver.errors import MarserveError
from marserve.archiver.mlserver_folder import SECTION, rank
from marserve.archiver.triton_config import completed
from marserve.archiver.triton_folder import KEY, reconfigured
from marserve.archiver.unpack import walk_files
from marserve.frontend.ensembles import Ensemble
from marserve.frontend.errors import (
    BadRequest,
    Conflict,
    InvalidModel,
    ModelNotFound,
    ServeError,
    ServiceUnavailable,
)
from marserve.frontend.registration import Registration

if TYPE_CHECKING:
    from marserve.archiver.unpack import Archive
    from marserve.frontend.config import ServerConfig
    from marserve.frontend.registry import Registry
    from marserve.frontend.store import ModelStore

_log = logging.getLogger(__name__)


class Repository:
    """What the model store holds, and what of it is loaded.

    Args:
        registry: Of the loaded models.
        config: ``model_control_mode`` and ``repository_poll_secs`` are read.
        store: Where the models are.

    Attributes:
        failures: Why a model is not served, by its name.
    """

    def __init__(self, registry: Registry, config: ServerConfig, store: ModelStore) -> None:
        self._registry = registry
        self._config = config
        self._store = store
        self._turns: dict[str, asyncio.Lock] = {}
        self._seen: dict[str, str] = {}
        self._poller: asyncio.Task[None] | None = None
        self.failures: dict[str, str] = {}

    def check_allowed(self) -> None:
        """Refuses calls that change what is loaded, where the control mode forbids them.

        Raises:
            ServiceUnavailable: If it does.
        """
        mode = self._config.model_control_mode
        if mode in ("none", "poll"):
            raise ServiceUnavailable(
                f"models are not loaded or unloaded by calls: model_control_mode is {mode};"
                " expected explicit"
            )

    async def load(
        self,
        name: str,
        config: dict[str, Any] | None = None,
        files: Mapping[str, bytes] | None = None,
    ) -> None:
        """Loads the versions of a model that are to be served; a loaded one is loaded anew.

        Args:
            name: Of the model.
            config: A Triton model's configuration in the place of its config.pbtxt.
            files: A Triton model's files by their paths in its folder, in the place of those of
                the store; with ``config`` alone.

        Requests that come meanwhile are answered by what was loaded before.

        Raises:
            ModelNotFound: If the store has no such model.
            ServeError: If it cannot be loaded; what was loaded before stays.
        """
        async with self._turn(name):
            if files:
                await self._load_sent(name, config or {}, files)
            else:
                await self._load(name, config, set())

    async def unload(self, name: str, dependents: bool = False) -> None:
        """Unloads all versions of a model; returns when their requests are answered.

        Args:
            name: Of the model; one that is not loaded is no error.
            dependents: Whether an ensemble's steps go with it, and ensembles with their steps.
        """
        for each in [name, *(self._dependents(name) if dependents else ())]:
            async with self._turn(each):
                await self._unload(each)

    def names(self) -> list[str]:
        """Returns the names of the models that the store holds, loaded or not; reads files."""
        return list(self._store.by_name())

    def start_polling(self) -> None:
        """From now on, follows what changes in the store, if the control mode says so."""
        if self._config.model_control_mode == "poll" and self._poller is None:
            self._poller = asyncio.ensure_future(self._poll())

    def close(self) -> None:
        """Follows nothing any more."""
        if self._poller is not None:
            self._poller.cancel()

    def settle_defaults(self) -> None:
        """Lets the version answer where none is named that would in the model's own server."""
        for model in self._registry.default_models():
            versions = self._registry.versions(model.name)
            if all(SECTION in each.archive.config.raw for each in versions):
                preferred = max(versions, key=lambda each: rank(each.archive)).version
                if preferred != model.version:
                    self._registry.set_default(model.name, preferred)
            if all(KEY in each.archive.config.raw for each in versions):
                able = [each for each in versions if each.scaler.servable] or versions
                highest = max((each.version for each in able), key=int)
                if highest != model.version:
                    self._registry.set_default(model.name, highest)

    # -- parts -----------------------------------------------------------------------------------

    def _turn(self, name: str) -> asyncio.Lock:
        """One change of a model at a time; a model that is loading may ask for others."""
        return self._turns.setdefault(name, asyncio.Lock())

    async def _load_sent(
        self, name: str, config: dict[str, Any], files: Mapping[str, bytes]
    ) -> None:
        """As ``_load``; a failure says nothing of what the store has."""
        archives = await self._store.keep(name, config, files)
        try:
            for archive in archives:
                await self._load_steps(archive, {name})
            await self._registry.replace(name, [self._registration("", each) for each in archives])
        except BaseException:
            for archive in archives:
                await self._store.release(archive, "")
            raise
        self.failures.pop(name, None)
        self.settle_defaults()

    async def _load(self, name: str, config: dict[str, Any] | None, loading: set[str]) -> None:
        urls = await asyncio.to_thread(self._store.urls_of, name)
        if not urls:
            raise ModelNotFound(f"failed to load '{name}': the model store has no such model")
        try:
            archives = [await self._opened(url, config) for url in urls]
            for archive in archives:
                await self._load_steps(archive, loading | {name})
            pairs = zip(urls, archives, strict=True)
            await self._registry.replace(name, [self._registration(*pair) for pair in pairs])
        except ServeError as error:
            self.failures[name] = error.message
            raise
        self.failures.pop(name, None)
        self.settle_defaults()

    async def _opened(self, url: str, config: dict[str, Any] | None) -> Archive | None:
        """Reads a folder before anything is changed; packed archives are unpacked later."""
        if not await asyncio.to_thread(self._store.is_folder, url):
            if config is not None:
                raise BadRequest("a configuration can be given for models of Triton's alone")
            return None
        archive = await self._store.fetch(url)
        if config is None:
            return archive
        if KEY not in archive.config.raw:
            raise BadRequest("a configuration can be given for models of Triton's alone")
        try:
            given = completed({**config, "name": archive.manifest.model.model_name})
            return reconfigured(archive, given)
        except MarserveError as error:
            raise InvalidModel(str(error)) from None

    async def _load_steps(self, archive: Archive | None, loading: set[str]) -> None:
        """An ensemble's models that are not loaded are loaded with it."""
        section = {} if archive is None else archive.config.raw.get(KEY, {})
        steps = section.get("config", {}).get("ensemble_scheduling", {}).get("step", [])
        for name in dict.fromkeys(step["model_name"] for step in steps):
            try:
                self._registry.resolve(name)
            except ModelNotFound:
                if name not in loading:
                    async with self._turn(name):
                        await self._load(name, None, loading)

    def _registration(self, url: str, archive: Archive | None) -> Registration:
        workers = max(1, self._config.default_workers_per_model)
        return Registration(url, archive=archive, initial_workers=workers, synchronous=True)

    async def _unload(self, name: str) -> None:
        try:
            versions = self._registry.versions(name)
        except ModelNotFound:
            return
        default = self._registry.resolve(name).version
        for model in sorted(versions, key=lambda each: each.version == default):
            await self._registry.unregister(name, model.version)

    def _dependents(self, name: str) -> list[str]:
        found: dict[str, None] = {}
        for model in self._registry.default_models():
            if isinstance(model, Ensemble):
                steps = {step.model for step in model.steps}
                if model.name == name:
                    found |= dict.fromkeys(sorted(steps))
                elif name in steps:
                    found[model.name] = None
        return list(found)

    async def _poll(self) -> None:
        self._seen = await asyncio.to_thread(self._prints)
        while True:
            await asyncio.sleep(self._config.repository_poll_secs)
            try:
                await self._follow()
            except Exception:
                _log.warning("the model store could not be followed", exc_info=True)

    async def _follow(self) -> None:
        """Loads what is new or changed since the last look, and unloads what is gone."""
        now = await asyncio.to_thread(self._prints)
        before, self._seen = self._seen, now
        for name in [name for name in before if name not in now]:
            _log.info("%s is gone from the model store", name)
            await self.unload(name)
        for name in [name for name, print_ in now.items() if before.get(name) != print_]:
            _log.info("%s is new in the model store, or has changed", name)
            try:
                await self.load(name)
            except (ServeError, Conflict) as error:
                _log.warning("%s is not served: %s", name, error)

    def _prints(self) -> dict[str, str]:
        """What tells a change of a model's files, by its name."""
        found = {}
        for name, paths in self._store.by_name().items():
            lines = [_print(path) for path in paths]
            found[name] = "\n".join(lines)
        return found


def _print(path: Path) -> str:
    files = [path]
    if path.is_dir():
        home = path.parent if path.name.isdecimal() else path
        files = [file for _, file in walk_files(path)]
        files += [each for each in home.iterdir() if home != path and each.is_file()]
    lines = []
    for file in files:
        try:
            status = os.stat(file)
        except OSError:
            continue  # it goes while we look; the next look tells
        lines.append(f"{status.st_size} {status.st_mtime_ns} {file}")
    return "\n".join(lines)
