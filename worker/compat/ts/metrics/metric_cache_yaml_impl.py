"""``ts.metrics.metric_cache_yaml_impl``, as handlers and their tests import it."""

from __future__ import annotations

from pathlib import Path

import yaml

from marserve.handlers.metrics import HandlerMetrics


class MetricsCacheYamlImpl(HandlerMetrics):
    """A handler's metrics, made by its own tests.

    Args:
        config_file_path: A metrics.yaml, or None.
    """

    def __init__(self, config_file_path: str | Path | None = None) -> None:
        config = yaml.safe_load(Path(config_file_path).read_text()) if config_file_path else None
        super().__init__("", config)

    def initialize_cache(self) -> None:
        """Does nothing: the file was read already."""
