"""Reports its own metrics through ``context.metrics``.

A batch of n requests adds n to the counter ``RequestsCounted`` (dimension ``Kind``), sets the
gauges ``LastBatch`` (count), ``LoadTime`` (ms) and ``InputSize`` (B), observes the histogram
``Lengths``, and counts up ``InitCount`` once at load. Answers ``counted``.
"""

from ts.metrics.dimension import Dimension
from ts.metrics.metric_type_enum import MetricTypes
from ts.torch_handler.base_handler import BaseHandler


class CountingHandler(BaseHandler):
    def initialize(self, context):
        metrics = context.metrics
        self.counted = metrics.add_metric_to_cache(
            metric_name="InitCount",
            unit="count",
            dimension_names=["ModelName", "Level"],
            metric_type=MetricTypes.COUNTER,
        )
        self.counted.add_or_update(value=1, dimension_values=[context.model_name, "Model"])
        self.initialized = True

    def handle(self, data, context):
        metrics = context.metrics
        sizes = [len(row.get("data") or row.get("body") or "") for row in data]
        metrics.add_counter("RequestsCounted", len(data), None, [Dimension("Kind", "plain")])
        metrics.add_metric("LastBatch", len(data), "count", metric_type=MetricTypes.GAUGE)
        metrics.add_time("LoadTime", 12.5, None, "ms")
        metrics.add_size("InputSize", sum(sizes), None, "B")
        for index, size in enumerate(sizes):
            metrics.add_metric(
                name="Lengths",
                value=size,
                unit="count",
                idx=index,
                metric_type=MetricTypes.HISTOGRAM,
            )
        return ["counted" for _ in data]
