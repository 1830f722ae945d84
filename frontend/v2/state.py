"""What V2 keeps between requests: shared memory regions, log settings, trace settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from marserve.frontend.v2.log_settings import LogSettings
from marserve.frontend.v2.shared_memory import Regions
from marserve.frontend.v2.traces import Traces

if TYPE_CHECKING:
    from marserve.frontend.config import ServerConfig


class V2State:
    """One for each server, whatever surface changes it.

    Args:
        config: Of the server.
    """

    def __init__(self, config: ServerConfig) -> None:
        self.regions = Regions(config)
        self.logs = LogSettings()
        self.traces = Traces()
