"""What the server counts and measures: Telemetry, for Prometheus or as log lines.

prometheus   everything is at /metrics (the default)
log          everything is a line in ts_metrics.log or model_metrics.log, /metrics is empty
legacy       the three ts_* counters are at /metrics, everything else is lines
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from marserve.frontend.instruments import Distribution, Family, OnChange, Value, safe_name
from marserve.frontend.metrics_config import MetricSpec, load_metrics_config
from marserve.frontend.metrics_log import UNITS, MetricsLog
from marserve.frontend.stages import STAGES, StageMetrics
from marserve.worker import wire

if TYPE_CHECKING:
    from marserve.frontend.config import ServerConfig

logger = logging.getLogger(__name__)

LEGACY = (
    "ts_inference_requests_total",
    "ts_inference_latency_microseconds",
    "ts_queue_latency_microseconds",
)
_CLASSES = {2: "Requests2XX", 4: "Requests4XX"}


class InferenceMetrics:
    """Counts the answered requests of one model; made by ``Telemetry.inference``.

    Args:
        requests: Counts them.
        latency_us: Sums their time from acceptance to answer, microseconds.
        queue_us: Sums their time in the queue, microseconds.
        queue_ms: The last one's time in the queue, milliseconds.
    """

    __slots__ = ("_latency_us", "_queue_ms", "_queue_us", "_requests")

    def __init__(
        self, requests: Value, latency_us: Value, queue_us: Value, queue_ms: Value
    ) -> None:
        self._requests = requests
        self._latency_us = latency_us
        self._queue_us = queue_us
        self._queue_ms = queue_ms

    def observe(self, latency_s: float, queue_s: float) -> None:
        """Counts one request with its times, in seconds."""
        self._requests.add(1.0)
        self._latency_us.add(latency_s * 1e6)
        self._queue_us.add(queue_s * 1e6)
        self._queue_ms.set(queue_s * 1e3)


class Telemetry:
    """All metrics of a server.

    Args:
        config: ``metrics_mode``, ``metrics_config``, ``model_metrics_auto_detect`` and
            ``metrics_location`` are read.

    Raises:
        ConfigError: If the metrics file is wrong.
    """

    def __init__(self, config: ServerConfig) -> None:
        self._host = socket.gethostname()
        self._mode = config.metrics_mode
        self._auto_detect = config.model_metrics_auto_detect
        specs = load_metrics_config(config.metrics_config)
        self.model_metrics_config: dict[str, Any] = specs.raw
        self._log = None if self._mode == "prometheus" else MetricsLog(config.metrics_location)
        self._server = {spec.name: self._family(spec, spec.dimensions) for spec in specs.server}
        self._model = {
            (spec.kind, spec.name): self._family(spec, _with_host(spec.dimensions), watch=False)
            for spec in specs.model
        }
        self._complained: set[str] = set()
        self._inference: dict[tuple[str, str], InferenceMetrics] = {}
        self._classes = [self._host_value(_CLASSES.get(i, "Requests5XX")) for i in range(10)]
        self._queue_ms = self._host_value("QueueTime")
        self._worker_ms = self._host_value("WorkerThreadTime")

    def response(self, status: int) -> None:
        """Counts an answer by its status class; what is neither 2xx nor 4xx counts as 5xx."""
        self._classes[status // 100 % 10].add(1.0)

    def inference(self, model: str, version: str | None) -> InferenceMetrics:
        """Returns what counts a model's requests.

        Args:
            model: Name.
            version: As the client named it; None where the default version was taken.
        """
        key = model, version or "default"
        found = self._inference.get(key)
        if found is None:
            labels = {"model_name": key[0], "model_version": key[1], "hostname": self._host}
            requests, latency_us, queue_us = (self._value(name, labels) for name in LEGACY)
            found = InferenceMetrics(requests, latency_us, queue_us, self._queue_ms)
            self._inference[key] = found
        return found

    def stages(self, model: str, version: str) -> StageMetrics:
        """Returns what measures the stages of one version's requests."""
        labels = {"model_name": model, "model_version": version}
        found = [self._value(name, labels) for name in STAGES]
        # One that the metrics file leaves out is measured into nothing.
        parts = [each if isinstance(each, Distribution) else Distribution() for each in found]
        return StageMetrics(*parts, overhead_ms=self._worker_ms)

    def mirrored(self, model: str, version: str) -> tuple[Value, Value]:
        """Returns the counters of copied requests and of those that failed, for one version."""
        labels = {"model_name": model, "model_version": version}
        requests = self._value("ts_mirrored_requests_total", labels)
        return requests, self._value("ts_mirrored_failures_total", labels)

    def worker_loaded(self, worker_name: str, duration_ms: float) -> None:
        """Notes how long a worker took to load."""
        self._value("WorkerLoadTime", {"WorkerName": worker_name, **self._levels()}).set(
            duration_ms
        )

    def worker_gone(self, worker_name: str) -> None:
        """Forgets a worker that has ended: its name does not come back."""
        family = self._server.get("WorkerLoadTime")
        if family is not None:
            labels = {"WorkerName": worker_name, **self._levels()}
            family.discard(*self._label_values(family, labels))

    def system(self, samples: Iterable[tuple[str, Mapping[str, str], float]]) -> None:
        """Sets gauges of the machine: name, dimensions besides level and host, value."""
        for name, dimensions, value in samples:
            self._value(name, {**self._levels(), **dimensions}).set(value)

    def record(self, samples: Sequence[wire.Sample], model_name: str) -> None:
        """Takes over what a handler reported.

        Args:
            samples: Values with their dimensions, in order.
            model_name: For complaints.
        """
        for sample in samples:
            if self._log is not None and self._wanted(sample):
                declared = self._model.get((sample.kind, sample.name))
                unit = declared.unit if declared else UNITS.get(sample.unit, sample.unit)
                self._log.model(sample, self._host, unit)
            if self._mode == "prometheus":
                self._sample(sample, model_name)

    def render(self, names: Sequence[str] = ()) -> bytes:
        """Returns the text of ``/metrics``, of these samples alone if any are named."""
        families = [*self._server.values(), *self._model.values()]
        if self._mode == "log":
            families = []
        elif self._mode == "legacy":
            families = [family for family in families if family.name in LEGACY]
        wanted = frozenset(names)
        lines = [line for family in families for line in family.render(wanted)]
        return "".join(f"{line}\n" for line in lines).encode()

    def close(self) -> None:
        """Writes what is left to the log files."""
        if self._log is not None:
            self._log.close()

    def _family(self, spec: MetricSpec, labels: Sequence[str], watch: bool = True) -> Family:
        tell: OnChange | None = None
        log = self._log
        exempt = (spec.name in LEGACY and self._mode == "legacy") or spec.name in STAGES
        if watch and log is not None and not exempt:
            tell = log.server
        names = [safe_name(label) for label in labels]
        return Family(safe_name(spec.name), spec.kind, spec.unit, names, tell, spec.buckets)

    def _levels(self) -> dict[str, str]:
        return {"Level": "Host", "Hostname": self._host}

    def _host_value(self, name: str) -> Value:
        return self._value(name, self._levels())

    def _value(self, name: str, labels: Mapping[str, str]) -> Value:
        """The time series of a server metric; one that nobody reads if the file leaves it out."""
        family = self._server.get(name)
        if family is None:
            return Value()
        try:
            return family.child(*self._label_values(family, labels))
        except ValueError as error:
            self._complain(name, str(error))
            return Value()

    def _label_values(self, family: Family, labels: Mapping[str, str]) -> list[str]:
        known = {**labels, "Hostname": self._host, "hostname": self._host}
        return [known.get(label, "") for label in family.labels]

    def _wanted(self, sample: wire.Sample) -> bool:
        return self._auto_detect or (sample.kind, sample.name) in self._model

    def _sample(self, sample: wire.Sample, model_name: str) -> None:
        family = self._model.get((sample.kind, sample.name))
        if family is None:
            family = self._register(sample, model_name)
            if family is None:
                return
        given = dict(sample.dimensions)
        given["Hostname"] = self._host
        values = {safe_name(name): str(value) for name, value in given.items()}
        try:
            series = family.child(*(values[label] for label in family.labels))
        except (KeyError, ValueError):
            text = f"its dimensions {list(values)} are not {family.labels}, or too many values"
            self._complain(sample.name, f"model {model_name}: metric {sample.name}: {text}")
            return
        if sample.kind == "gauge":
            series.set(sample.value)
        else:
            series.add(sample.value)

    def _register(self, sample: wire.Sample, model_name: str) -> Family | None:
        name = safe_name(sample.name)
        taken = {family.name for family in (*self._server.values(), *self._model.values())}
        if (
            not self._auto_detect
            or name in taken
            or sample.kind not in ("counter", "gauge", "histogram")
        ):
            text = "is of another kind elsewhere" if name in taken else "is not in metrics_config"
            self._complain(sample.name, f"model {model_name}: metric {sample.name} {text}: dropped")
            return None
        labels = _with_host([label for label, _ in sample.dimensions])
        unit = UNITS.get(sample.unit, sample.unit)
        spec = MetricSpec(sample.name, sample.kind, unit, labels)
        family = self._model[sample.kind, sample.name] = self._family(spec, labels, watch=False)
        return family

    def _complain(self, name: str, text: str) -> None:
        if name not in self._complained:
            self._complained.add(name)
            logger.warning("%s", text)


def _with_host(dimensions: Sequence[str]) -> tuple[str, ...]:
    """Label names with the host's, each once."""
    return tuple(dict.fromkeys((*dimensions, "Hostname")))
