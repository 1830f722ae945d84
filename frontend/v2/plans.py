"""How a model is asked by V2: decided once a model, from its archive and its settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from marserve.frontend.v2.rows import BY_ROW

if TYPE_CHECKING:
    from marserve.archiver.signature import Signature
    from marserve.frontend.model import Model
    from marserve.frontend.v2.forms import Form


@dataclass(slots=True, frozen=True)
class Plan:
    """How one version of a model is asked.

    Args:
        by_row: The built-in handler that takes one thing a request; empty if it takes tensors.
        signature: Its tensors, where they are known.
        counts_rows: Whether a request fills as much of a batch as its first dimension says.
        forms: Of requests that came and may come again, by their JSON part, or by the length of
            the message and what it has before the tensors.
    """

    by_row: str
    signature: Signature | None
    counts_rows: bool
    forms: dict[bytes | tuple[int, bytes], Form] = field(default_factory=dict)


_plans: WeakKeyDictionary[Model, Plan] = WeakKeyDictionary()


def plan_of(model: Model, default_handler: str | None) -> Plan:
    """Returns how a model is asked.

    Args:
        model: A version of it.
        default_handler: ``default_service_handler`` of the server.
    """
    plan = _plans.get(model)
    if plan is None:
        plan = _plans[model] = _plan(model, default_handler)
    return plan


def _plan(model: Model, default_handler: str | None) -> Plan:
    archive, settings = model.archive, model.settings
    handler = settings.handler or archive.config.use_handler
    handler = handler or archive.manifest.model.handler or default_handler or ""
    name = handler.partition(":")[0].rpartition("/")[2].removesuffix(".py")
    own = (archive.directory / f"{name}.py").is_file()
    signature = archive.signature
    bounded = signature is not None and signature.rows_max > 0
    batched = "mlserver" in archive.config.raw and settings.batch_size > 1
    return Plan(name if name in BY_ROW and not own else "", signature, bounded or batched)
