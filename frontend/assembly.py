"""Makes the parts of a server and joins them.

Its imports are most of what a start takes before the models, so it is imported once the first
model's template is on its way.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from marserve.frontend.api.app import Services, build_apps
from marserve.frontend.auth import TokenAuth
from marserve.frontend.metrics import Telemetry
from marserve.frontend.registry import Registry
from marserve.frontend.sites import Sites
from marserve.frontend.store import ModelStore
from marserve.frontend.system import SystemMetrics
from marserve.frontend.workflows.registry import Workflows

if TYPE_CHECKING:
    from collections.abc import Callable

    from marserve.frontend.config import ServerConfig
    from marserve.frontend.early_template import EarlyTemplates
    from marserve.frontend.logs import Logs


@dataclass(frozen=True, slots=True)
class Parts:
    """What a server consists of.

    Args:
        services: What every surface works with.
        registry: The models.
        workflows: Their compositions.
        sites: The HTTP addresses, not bound yet.
        system: Samples the machine, not started yet; None where that is switched off.
    """

    services: Services
    registry: Registry
    workflows: Workflows
    sites: Sites
    system: SystemMetrics | None


def assemble(
    config: ServerConfig,
    directory: Path,
    logs: Logs,
    store: ModelStore,
    early: EarlyTemplates,
    closes: Callable[[Callable[[], object]], None],
) -> Parts:
    """Returns the parts of a server.

    Args:
        config: Its settings.
        directory: Where its key file goes.
        logs: Its logs.
        store: Where its archives are.
        early: Templates that were started ahead.
        closes: Is told at once how each part that holds something is closed.

    Raises:
        MarserveError: If the key file or the metrics configuration is wrong.
    """
    auth = TokenAuth(config, directory)
    closes(auth.close)
    telemetry = Telemetry(config)
    closes(telemetry.close)
    registry = Registry(config, store, telemetry, logs.worker, early)
    archives = ModelStore(config, config.workflow_store or config.model_store)
    closes(archives.close)
    workflows = Workflows(registry, archives, config.max_response_size)
    services = Services(config, registry, telemetry, auth, logs.access, workflows)
    registry.serve(services)
    sites = Sites(config, build_apps(services))
    sampled = not config.disable_system_metrics
    system = SystemMetrics(telemetry, config.metric_time_interval) if sampled else None
    return Parts(services, registry, workflows, sites, system)
