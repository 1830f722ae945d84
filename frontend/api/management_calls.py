"""What management calls do and say, the same over HTTP and gRPC."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from marserve.frontend.api import inference
from marserve.frontend.api.description import describe_model
from marserve.frontend.api.exchange import Exchange
from marserve.frontend.api.management_requests import ScaleWanted, render_page
from marserve.frontend.errors import MethodNotAllowed

if TYPE_CHECKING:
    from marserve.frontend.registration import Registration
    from marserve.frontend.registry import Registry

logger = logging.getLogger(__name__)


class Done(NamedTuple):
    """What is said of a change: a sentence, and the HTTP status that goes with it."""

    text: str
    status: int = 200


def page(registry: Registry, begin: int, limit: int) -> dict[str, Any]:
    """Returns a page of the default versions, and the traffic rules of those that have some."""
    found = render_page([(m.name, m.url) for m in registry.default_models()], begin, limit)
    for entry in found["models"]:
        if rules := registry.traffic(entry["modelName"]).describe_rules():
            entry["traffic"] = rules
    return found


async def describe(
    registry: Registry, name: str, version: str | None, customized: bool, id: str
) -> list[dict[str, Any]]:
    """Describes the default version, a named one, or ``all``.

    Args:
        registry: Knows the models.
        name: Of the model.
        version: None for the default one.
        customized: Whether the handlers are asked to describe themselves.
        id: Of the request.
    """
    every = version == "all"
    models = registry.versions(name) if every else [registry.resolve(name, version)]
    rules = registry.traffic(name)
    described = [describe_model(m) | rules.describe_share(m.version) for m in models]
    if customized:
        for model, entry in zip(models, described, strict=True):
            entry["customizedMetadata"] = _object(await inference.describe_metadata(model, id))
    return described


async def register(registry: Registry, wanted: Registration, unknown: list[str]) -> Done:
    """Registers a model from the model store or an allowed URL."""
    if unknown:
        logger.warning("register: parameters without effect: %r", unknown)
    done = await Exchange.finish(registry.register(wanted))
    if done.workers and not wanted.synchronous:
        return Done("Processing worker updates...", 202)
    name, version = done.model.name, done.model.version
    text = f'Model "{name}" Version: {version} registered with {done.workers} initial workers'
    if not done.workers:
        text += ". Use scale workers API to add workers for the model."
    return Done(text)


async def scale(
    registry: Registry, name: str, version: str | None, wanted: ScaleWanted, unknown: list[str]
) -> Done:
    """Sets the least and the greatest number of workers."""
    if unknown:
        logger.warning("scale: parameters without effect: %r", unknown)
    work = registry.scale(name, version, wanted.min_workers, wanted.max_workers, wanted.synchronous)
    complete = await Exchange.finish(work)
    if not wanted.synchronous:
        return Done("Processing worker updates...", 202)
    if not complete:
        return Done("Workers scaling in progress...", 206)
    which = f", version: {version}" if version else ""
    return Done(f"Workers scaled to {wanted.min_workers} for model: {name}{which}")


async def set_default(registry: Registry, name: str, version: str) -> Done:
    """Makes a version the one that requests without a version get."""
    registry.set_default(name, version)
    await registry.snapshots.save()
    done = f'Default version successfully updated for model "{name}" to "{version}"'
    model = registry.resolve(name, version)
    if not (registry.strict or model.pool.ready or model.scaler.dormant):
        done += ". It has no worker that is ready: requests get 503, or wait, until it has one"
    return Done(done)


async def unregister(registry: Registry, name: str, version: str | None) -> Done:
    """Ends a version's workers and forgets it."""
    await Exchange.finish(registry.unregister(name, version))
    return Done(f'Model "{name}" unregistered')


def switched_off() -> MethodNotAllowed:
    """Returns what is said where models may not be registered or unregistered."""
    return MethodNotAllowed(
        "Registering and unregistering models is switched off. Start the server with"
        " --enable-model-api, or set enable_model_api=true in config.properties."
    )


def _object(document: bytes) -> dict[str, object]:
    """A handler's description if it is a JSON object, else an empty one."""
    try:
        value = msgspec.json.decode(document)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
