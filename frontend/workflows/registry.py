"""Which workflows are served. Each of their nodes is a model of its own, WORKFLOW__NODE."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from marserve.archiver.errors import ArchiveError, ConfigError, MarserveError
from marserve.archiver.manifest import DEFAULT_VERSION, Manifest, ManifestModel
from marserve.archiver.model_config import ModelConfig
from marserve.archiver.unpack import Archive
from marserve.archiver.workflow import Node, WorkflowSpec
from marserve.archiver.workflow_archive import WorkflowArchive, unpack_workflow
from marserve.frontend.errors import (
    Conflict,
    InvalidWorkflow,
    ModelNotFound,
    ServeError,
    ServiceUnavailable,
    WorkflowFailed,
    WorkflowNotFound,
)
from marserve.frontend.registration import Registration, checked_identity
from marserve.frontend.workflows.execution import Execution, Inputs

if TYPE_CHECKING:
    from marserve.frontend.model import Model
    from marserve.frontend.model_defaults import WorkflowEntry
    from marserve.frontend.registry import Registry
    from marserve.frontend.store import ModelStore
    from marserve.frontend.types import Chunk

_log = logging.getLogger(__name__)


class Workflow:
    """One served workflow.

    Args:
        name: As clients call it.
        url: As it was registered.
        archive: Its files.
    """

    def __init__(self, name: str, url: str, archive: WorkflowArchive) -> None:
        self.name = name
        self.url = url
        self.archive = archive
        self.running = 0
        self.idle = asyncio.Event()
        self.idle.set()

    @property
    def spec(self) -> WorkflowSpec:
        """Its graph."""
        return self.archive.spec

    def model_name(self, node: str) -> str:
        """Returns the name under which a node's model is registered."""
        return f"{self.name}__{node}"


class Workflows:
    """All served workflows.

    Args:
        registry: Where their models are.
        store: Where their archives are.
        most_bytes: Largest result of a node: ``max_response_size``.
    """

    def __init__(self, registry: Registry, store: ModelStore, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._registry = registry
        self._store = store
        self._names: dict[str, Workflow] = {}
        self._claims: set[str] = set()
        self.draining = False
        registry.snapshots.workflows = self.describe

    def describe(self) -> list[dict[str, Any]]:
        """Returns what a snapshot says of the workflows: how they were registered and scaled."""
        return [
            {"name": each.name, "url": each.url, "workers": self._workers(each)}
            for each in self.all()
        ]

    def _workers(self, workflow: Workflow) -> dict[str, tuple[int, int]]:
        found = {}
        for node in workflow.spec.nodes:
            with suppress(ServeError):  # a node can be unregistered by its own name
                model = self._registry.resolve(workflow.model_name(node))
                found[node] = (model.min_workers, model.max_workers)
        return found

    async def restore(self, entries: Sequence[WorkflowEntry]) -> None:
        """Registers the workflows of a snapshot; what fails is a warning, the rest goes on."""
        for entry in entries:
            try:
                await self.register(entry.url, entry.name, entry.workers, at_startup=True)
            except MarserveError as error:
                _log.warning("workflow %s=%s is not served: %s", entry.name, entry.url, error)
            else:
                _log.info("workflow %s is served", entry.name)

    def all(self) -> list[Workflow]:
        """Returns all workflows, by name."""
        return [workflow for _, workflow in sorted(self._names.items())]

    def resolve(self, name: str) -> Workflow:
        """Returns a workflow.

        Raises:
            WorkflowNotFound: If there is none of that name.
        """
        if name not in self._names:
            raise WorkflowNotFound(f"Workflow not found: {name[:100]}")
        return self._names[name]

    async def run(
        self, name: str, id: str, headers: dict[str, str], inputs: Inputs, timeout_s: float | None
    ) -> Chunk:
        """Sends a request through a workflow and returns its answer.

        Args:
            name: Of the workflow.
            id: Of the request.
            headers: The client's.
            inputs: What the client sent.
            timeout_s: The client's time limit for the whole, or None.

        Raises:
            WorkflowNotFound: If there is no such workflow.
            ServeError: If a node fails.
        """
        workflow = self.resolve(name)
        if self.draining:
            raise ServiceUnavailable("The server is being stopped.", retry_after_s=1)
        deadline = float("inf") if timeout_s is None else time.monotonic() + timeout_s

        def find(node: str) -> Model:
            return self._registry.resolve(workflow.model_name(node))

        workflow.running += 1
        workflow.idle.clear()
        try:
            execution = Execution(id, workflow.spec, find, headers, deadline, self._most_bytes)
            return await execution.run(inputs)
        finally:
            workflow.running -= 1
            if not workflow.running:
                workflow.idle.set()

    async def register(
        self,
        url: str,
        name: str | None = None,
        workers: Mapping[str, tuple[int, int]] = MappingProxyType({}),
        *,
        at_startup: bool = False,
    ) -> Workflow:
        """Unpacks a workflow and registers all of its nodes; if one fails, none is left.

        Args:
            url: File in the workflow store, or an allowed URL.
            name: Instead of its own.
            workers: Least and most workers of a node, where not as the specification says.
            at_startup: Whether a snapshot is restored: files that are in the store are used then.

        Raises:
            Conflict: If there is a workflow of that name.
            InvalidWorkflow: If the archive is broken or its specification wrong.
            WorkflowFailed: If a node cannot be registered; names each that failed.
        """
        archive, target = await self._unpack(url, at_startup)
        claimed = ""
        try:
            name = name or archive.name
            checked_identity("workflow name", name)
            if name in self._names or name in self._claims:
                raise Conflict(f"Workflow {name} is already registered.")
            self._claims.add(claimed := name)
            workflow = Workflow(name, url, archive)
            await self._register_nodes(workflow, workers, at_startup)
            self._names[name] = workflow
        except BaseException:
            await self._store.discard(target, "" if at_startup else url)
            raise
        finally:
            self._claims.discard(claimed)
        await self._registry.snapshots.save()
        return workflow

    async def unregister(self, name: str) -> None:
        """Forgets a workflow once its running requests are answered, and its nodes with it.

        Raises:
            WorkflowNotFound: If there is none of that name.
        """
        workflow = self.resolve(name)
        del self._names[name]
        await self._registry.snapshots.save()
        await workflow.idle.wait()
        await self._unregister_nodes(workflow)
        await self._store.discard(workflow.archive.directory, workflow.url)

    async def drain(self, timeout_s: float) -> None:
        """Accepts nothing more and waits until all running requests are answered."""
        self.draining = True
        waits = [asyncio.ensure_future(w.idle.wait()) for w in self._names.values() if w.running]
        if waits:
            _, late = await asyncio.wait(waits, timeout=timeout_s)
            for wait in late:
                wait.cancel()

    # -- parts -----------------------------------------------------------------------------------

    async def _unpack(self, url: str, kept: bool) -> tuple[WorkflowArchive, os.PathLike[str]]:
        try:
            path = await self._store.obtain(url, reuse=kept)
        except ModelNotFound as error:
            text = str(error).replace("Model not found at", "Workflow not found in workflow store")
            raise WorkflowNotFound(text) from error
        target = self._store.new_directory()
        try:
            return await asyncio.to_thread(unpack_workflow, path, target), target
        except (ArchiveError, ConfigError) as error:
            await self._store.discard(target, "" if kept else url)
            text = self._store.without_paths(str(error))
            raise InvalidWorkflow(f"{os.path.basename(url)}: {text}") from error

    async def _register_nodes(
        self, workflow: Workflow, workers: Mapping[str, tuple[int, int]], at_startup: bool
    ) -> None:
        nodes = []
        for node in workflow.spec.nodes.values():
            least, most = workers.get(node.name, (node.min_workers, node.max_workers))
            nodes.append(replace(node, min_workers=least, max_workers=most))
        done = await asyncio.gather(
            *(self._register_node(workflow, node, at_startup) for node in nodes),
            return_exceptions=True,
        )
        failed = [error for error in done if isinstance(error, BaseException)]
        if not failed:
            return
        await self._unregister_nodes(
            workflow, [n for n, d in zip(nodes, done, strict=True) if d is None]
        )
        for error in failed:
            if not isinstance(error, ServeError):
                raise error
        causes = "; ".join(
            f"node {node.name}: {cause}"
            for node, cause in zip(nodes, done, strict=True)
            if cause is not None
        )
        raise WorkflowFailed(f"Workflow {workflow.name} has failed to register: {causes}")

    async def _register_node(self, workflow: Workflow, node: Node, at_startup: bool) -> None:
        name = workflow.model_name(node.name)
        archive = None if node.url is not None else _function_archive(workflow.archive, name, node)
        registration = Registration(
            url=node.url or f"{os.path.basename(workflow.url)}#{node.name}",
            model_name=name,
            batch_size=node.batch_size,
            max_batch_delay=node.max_batch_delay_ms,
            initial_workers=node.min_workers,
            archive=archive,
            workflow=workflow.name,
            workers=(node.min_workers, node.max_workers) if at_startup else None,
            at_startup=at_startup,
        )
        await self._registry.register(registration)
        await self._registry.scale(name, None, node.min_workers, node.max_workers, wait=False)

    async def _unregister_nodes(self, workflow: Workflow, nodes: list[Node] | None = None) -> None:
        chosen = list(workflow.spec.nodes.values()) if nodes is None else nodes
        names = [workflow.model_name(node.name) for node in chosen]
        done = await asyncio.gather(
            *(self._registry.unregister(name, None) for name in names), return_exceptions=True
        )
        for name, error in zip(names, done, strict=True):
            if isinstance(error, BaseException):
                _log.warning("workflow %s: %s: %s", workflow.name, name, error)


def _function_archive(workflow: WorkflowArchive, name: str, node: Node) -> Archive:
    """A model that is one function of the workflow's handler file."""
    module = (workflow.handler or "").removesuffix(".py")
    model = ManifestModel(
        model_name=name, handler=f"{module}:{node.name}", model_version=DEFAULT_VERSION
    )
    return Archive(workflow.directory, Manifest(runtime="python", model=model), ModelConfig(), "")
