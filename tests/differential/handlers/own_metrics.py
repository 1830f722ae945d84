"""Metrics of each kind, named by no file, by file, and through the cache."""

from ts.metrics.dimension import Dimension
from ts.metrics.metric_type_enum import MetricTypes
from ts.service import emit_metrics  # noqa: F401 - what handlers import


class MetricsHandler:
    def initialize(self, context):
        self.loads = context.metrics.add_metric_to_cache(
            metric_name="Loads",
            unit="count",
            dimension_names=["ModelName", "Level"],
            metric_type=MetricTypes.COUNTER,
        )
        self.loads.add_or_update(1, [context.model_name, "Model"])
        self.initialized = True

    def handle(self, data, context):
        metrics = context.metrics
        rows = [row.get("data") or row.get("body") for row in data]
        metrics.add_counter("Rows", len(rows), None, [Dimension("Kind", "plain")])
        metrics.add_counter(name="Twice", value=2)
        metrics.add_error("Mistakes", 3)
        metrics.add_time("Wait", 12.5, None, "ms")
        metrics.add_time("WaitS", 0.5, None, "s")
        metrics.add_size("Body", 7, None, "kB", [Dimension("Part", "body")])
        metrics.add_percent("Full", 50)
        metrics.add_metric("Level", 4, "count", metric_type=MetricTypes.GAUGE)
        metrics.add_metric("Lengths", 0.3, "count", metric_type=MetricTypes.HISTOGRAM)
        for index in range(len(rows)):
            metrics.add_counter("EachRow", 1, index)
        found = metrics.get_metric("Rows", MetricTypes.COUNTER)
        found.add_or_update(1, ["other", context.model_name, "Model"])
        return ["counted" for _ in rows]
