"""How models end: their requests are answered first, and who asks others goes before those."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from marserve.frontend.building import ASKING
from marserve.frontend.ensembles import ENSEMBLE_HANDLER
from marserve.frontend.errors import CleanupTimeout

if TYPE_CHECKING:
    from marserve.frontend.model import Model
    from marserve.frontend.store import ModelStore


async def retire(model: Model, store: ModelStore, timeout_s: float) -> None:
    """Ends the workers of a model that nobody finds any more, and removes what it unpacked.

    Args:
        model: Of which the registry knows nothing now.
        store: Its files are from there.
        timeout_s: How long the requests it has may take; after that they are failed.

    Raises:
        CleanupTimeout: If they took too long.
    """
    late = False
    try:
        async with asyncio.timeout(timeout_s):
            await model.drain()
    except TimeoutError:
        late = True
    await model.close(at_once=late)
    await store.release(model.archive, model.url)
    if late:
        raise CleanupTimeout(f"Timed out while cleaning resources: {model.name}")


def askers_first(models: list[Model]) -> list[list[Model]]:
    """Models in the order in which they may stop: who asks others, before those it may ask."""
    ranks: dict[str, int] = {ENSEMBLE_HANDLER: 0, **dict.fromkeys(ASKING, 1)}
    found: list[list[Model]] = [[], [], []]
    for model in models:
        found[ranks.get(model.archive.manifest.model.handler, 2)].append(model)
    return found
