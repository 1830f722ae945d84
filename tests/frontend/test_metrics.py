from __future__ import annotations

import math
import re
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marserve.archiver.errors import ConfigError
from marserve.frontend.config import ServerConfig
from marserve.frontend.instruments import MAX_CHILDREN, Family, number, safe_name
from marserve.frontend.metrics import Telemetry
from marserve.frontend.metrics_config import load_metrics_config
from marserve.frontend.system import SystemMetrics, host_samples, parse_gpus
from marserve.frontend.types import ChunkStream, InferenceRequest
from marserve.worker.wire import Sample

HOST = socket.gethostname()
LINE = re.compile(
    r'[a-zA-Z_:][\w:]*(\{([a-zA-Z_:][\w:]*="(\\.|[^"\\])*",)+\})? (-?[\d.e+-]+|NaN|[+-]Inf)'
)
CONTRACT = {
    "counter": {
        "Requests2XX",
        "Requests4XX",
        "Requests5XX",
        "ts_inference_requests_total",
        "ts_inference_latency_microseconds",
        "ts_queue_latency_microseconds",
    },
    "gauge": {
        "QueueTime",
        "WorkerThreadTime",
        "WorkerLoadTime",
        "CPUUtilization",
        "MemoryUsed",
        "MemoryAvailable",
        "MemoryUtilization",
        "DiskUsage",
        "DiskUtilization",
        "DiskAvailable",
        "GPUMemoryUtilization",
        "GPUMemoryUsed",
        "GPUUtilization",
        "HandlerTime",
        "PredictionTime",
    },
}
OURS = {
    "counter": {"ts_mirrored_requests_total", "ts_mirrored_failures_total"},
    "histogram": {
        "ts_queue_seconds",
        "ts_batch_wait_seconds",
        "ts_batch_size",
        "ts_worker_seconds",
        "ts_handler_seconds",
        "ts_preprocess_seconds",
        "ts_inference_seconds",
        "ts_postprocess_seconds",
        "ts_encode_seconds",
    },
}


Make = Callable[..., Telemetry]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def build(**settings: Any) -> Telemetry:
        defaults: dict[str, Any] = {
            "model_store": tmp_path,
            "metrics_location": tmp_path / "metrics",
        }
        return Telemetry(ServerConfig(**(defaults | settings)))

    return build


def text(telemetry: Telemetry, *names: str) -> str:
    return telemetry.render(names).decode()


def sample(
    name: str = "Mine",
    value: float = 1.0,
    kind: str = "counter",
    dimensions: Sequence[tuple[str, str]] = (("ModelName", "m"),),
    unit: str = "ms",
) -> Sample:
    return Sample(name, value, unit, kind, list(dimensions), "r1")


def test_default_families(make: Make) -> None:
    rendered = text(make())
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", rendered, re.M))

    known = [*CONTRACT.items(), *OURS.items()]
    assert kinds == {name: kind for kind, names in known for name in names}
    help_line = "# HELP CPUUtilization Torchserve prometheus gauge metric with unit: Percent"
    assert help_line in rendered.splitlines()


def test_responses_by_class(make: Make) -> None:
    telemetry = make()
    for status in (200, 204, 404, 413, 500, 302, 499, 101):
        telemetry.response(status)
    lines = text(telemetry).splitlines()

    assert f'Requests2XX{{Level="Host",Hostname="{HOST}",}} 2.0' in lines
    assert f'Requests4XX{{Level="Host",Hostname="{HOST}",}} 3.0' in lines
    assert f'Requests5XX{{Level="Host",Hostname="{HOST}",}} 3.0' in lines


def test_inference(make: Make) -> None:
    telemetry = make()
    telemetry.inference("m", None).observe(0.002, 0.001)
    telemetry.inference("m", None).observe(0.002, 0.0005)
    telemetry.inference("m", "2.0").observe(1.0, 0.0)
    lines = text(telemetry).splitlines()

    default = f'{{model_name="m",model_version="default",hostname="{HOST}",}}'
    assert f"ts_inference_requests_total{default} 2.0" in lines
    assert f"ts_inference_latency_microseconds{default} 4000.0" in lines
    assert f"ts_queue_latency_microseconds{default} 1500.0" in lines
    assert f'QueueTime{{Level="Host",Hostname="{HOST}",}} 0.0' in lines
    version = f'{{model_name="m",model_version="2.0",hostname="{HOST}",}}'
    assert f"ts_inference_latency_microseconds{version} 1000000.0" in lines


def test_stages(make: Make) -> None:
    telemetry = make()
    requests = [InferenceRequest(str(n), "predict", {}, [], [], ChunkStream()) for n in range(3)]
    for request, waited in zip(requests, (0.5, 0.125, 0.0), strict=True):
        request.queued_at, request.sent_at = 1.0, 1.0 + waited
    stages = telemetry.stages("m", "1.0")
    stages.sent(0.0625)
    stages.handled([(0, 0.5), (1, 2.0), (2, 0.25), (3, 0.125), (1, 1.0)])
    stages.batch(requests, 0.25, 0.125)
    lines = text(telemetry).splitlines()

    labels = f'model_name="m",model_version="1.0",hostname="{HOST}",'
    assert f'ts_queue_seconds_bucket{{{labels}le="0.0001",}} 1.0' in lines
    assert f'ts_queue_seconds_bucket{{{labels}le="0.25",}} 2.0' in lines
    assert f"ts_queue_seconds_sum{{{labels}}} 0.625" in lines
    assert f'ts_batch_size_bucket{{{labels}le="2.0",}} 0.0' in lines
    assert f'ts_batch_size_bucket{{{labels}le="4.0",}} 1.0' in lines
    assert f"ts_worker_seconds_sum{{{labels}}} 0.25" in lines
    assert f"ts_handler_seconds_sum{{{labels}}} 0.125" in lines
    assert f"ts_batch_wait_seconds_sum{{{labels}}} 0.0625" in lines
    assert f"ts_preprocess_seconds_sum{{{labels}}} 0.5" in lines
    assert f"ts_inference_seconds_sum{{{labels}}} 3.0" in lines
    assert f"ts_inference_seconds_count{{{labels}}} 2.0" in lines
    assert f"ts_postprocess_seconds_sum{{{labels}}} 0.25" in lines
    assert f"ts_encode_seconds_sum{{{labels}}} 0.125" in lines
    assert f'WorkerThreadTime{{Level="Host",Hostname="{HOST}",}} 125.0' in lines


def test_stages_that_no_file_names_cost_nothing_but_time(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "m.yaml"
    path.write_text("ts_metrics: {histogram: [{name: ts_batch_size, buckets: [1, 8]}]}\n")
    telemetry = make(metrics_config=path)
    telemetry.stages("m", "1.0").batch([], 1.0, 1.0)

    assert "ts_queue_seconds" not in text(telemetry)
    assert 'ts_batch_size_bucket{le="8.0",} 1.0' in text(telemetry)


def test_names_filter(make: Make) -> None:
    telemetry = make()
    telemetry.response(200)
    telemetry.worker_loaded("W-9000-m_1.0", 12.5)

    expected = f'WorkerLoadTime{{WorkerName="W-9000-m_1.0",Level="Host",Hostname="{HOST}",}} 12.5'
    assert text(telemetry, "WorkerLoadTime", "nothing").splitlines()[2:] == [expected]
    assert text(telemetry, "nothing") == ""


def test_handler_metrics(make: Make) -> None:
    telemetry = make()
    times = sample("HandlerTime", 3.5, "gauge", [("ModelName", "m"), ("Level", "Model")])
    telemetry.record([times, sample(), sample(value=2)], "m")
    lines = text(telemetry).splitlines()

    assert f'HandlerTime{{ModelName="m",Level="Model",Hostname="{HOST}",}} 3.5' in lines
    assert "# TYPE Mine counter" in lines
    assert f'Mine{{ModelName="m",Hostname="{HOST}",}} 3.0' in lines


def test_handler_metrics_that_do_not_fit(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    telemetry = make()
    wrong = sample("HandlerTime", 1, "gauge", [("Other", "x")])
    telemetry.record([wrong, wrong, sample("Requests2XX"), sample("odd name!")], "m")
    rendered = text(telemetry)

    assert "HandlerTime{" not in rendered
    assert "odd_name_{" in rendered
    assert [r.levelname for r in caplog.records] == ["WARNING", "WARNING"]
    assert "HandlerTime" in caplog.text
    assert "Requests2XX" in caplog.text


def test_unlisted_handler_metrics_can_be_refused(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    telemetry = make(model_metrics_auto_detect=False)
    telemetry.record([sample()], "m")

    assert "Mine" not in text(telemetry)
    assert "not in metrics_config" in caplog.text


def test_log_mode(make: Make, tmp_path: Path) -> None:
    telemetry = make(metrics_mode="log")
    telemetry.response(200)
    telemetry.inference("m", None).observe(0.001, 0)
    telemetry.record([sample()], "m")
    telemetry.close()
    server = (tmp_path / "metrics/ts_metrics.log").read_text().splitlines()
    model = (tmp_path / "metrics/model_metrics.log").read_text().splitlines()

    assert text(telemetry) == ""
    stamp = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d,\d{3} - "
    host = re.escape(HOST)
    end = rf"\|#hostname:{host},timestamp:\d+"
    assert re.fullmatch(rf"{stamp}Requests2XX\.Count:1\.0\|#Level:Host{end}", server[0])
    labels = "model_name:m,model_version:default"
    assert re.fullmatch(
        rf"{stamp}ts_inference_requests_total\.Count:1\.0\|#{labels}{end}", server[1]
    )
    ids = rf"\|#hostname:{host},requestID:r1,timestamp:\d+"
    assert re.fullmatch(rf"{stamp}Mine\.Milliseconds:1\.0\|#ModelName:m{ids}", model[0])


def test_legacy_mode(make: Make, tmp_path: Path) -> None:
    telemetry = make(metrics_mode="legacy")
    telemetry.response(200)
    telemetry.inference("m", None).observe(0.001, 0)
    telemetry.close()
    names = re.findall(r"^# TYPE (\S+)", text(telemetry), re.M)
    lines = (tmp_path / "metrics/ts_metrics.log").read_text()

    assert len(names) == 3
    assert all(name.startswith("ts_") for name in names)
    assert "Requests2XX" in lines
    assert "ts_inference" not in lines


def test_metrics_file(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "m.yaml"
    path.write_text(
        "ts_metrics: {counter: [{name: Requests2XX, unit: Count, dimensions: [Level, Extra]}]}\n"
        "model_metrics: {histogram: [{name: H, unit: ms, dimensions: [ModelName]}]}\n"
    )
    telemetry = make(metrics_config=path)
    telemetry.response(200)
    telemetry.response(404)
    telemetry.record([sample("H", v, "histogram") for v in (0.3, 99, 0.005)], "m")
    lines = text(telemetry).splitlines()

    assert 'Requests2XX{Level="Host",Extra="",} 1.0' in lines
    assert not any("Requests4XX" in line for line in lines)
    labels = f'ModelName="m",Hostname="{HOST}",'
    assert f'H_bucket{{{labels}le="0.005",}} 1.0' in lines
    assert f'H_bucket{{{labels}le="0.5",}} 2.0' in lines
    assert f'H_bucket{{{labels}le="+Inf",}} 3.0' in lines
    assert f"H_count{{{labels}}} 3.0" in lines
    assert telemetry.model_metrics_config["model_metrics"]["histogram"][0]["name"] == "H"


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ("[]", "no mapping"),
        ("a: [", "no YAML"),
        ("ts_metrics: {timer: []}", r"ts_metrics.timer: is no kind of metric"),
        ("model_metrics: {gauge: {}}", r"model_metrics.gauge: is no list"),
        ("model_metrics: {gauge: [{unit: ms}]}", r"gauge\[0\]: is no metric"),
        ("ts_metrics: {histogram: [{name: H, buckets: [2, 1]}]}", r"buckets: is no list of asc"),
        ("ts_metrics: {histogram: [{name: H, buckets: 1}]}", r"buckets: is no list of asc"),
        ("a: !!python/object:os.system {}", "no YAML"),
    ],
)
def test_broken_metrics_file(tmp_path: Path, content: str, match: str) -> None:
    path = tmp_path / "m.yaml"
    path.write_text(content)

    with pytest.raises(ConfigError, match=match):
        load_metrics_config(path)


def test_missing_metrics_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_metrics_config(tmp_path / "none.yaml")


def test_default_buckets() -> None:
    family = Family("H", "histogram", "ms", [])
    family.child().add(0.02)
    lines = family.render()

    assert re.findall('le="(.*?)"', "".join(lines)) == (
        [
            "0.005",
            "0.01",
            "0.025",
            "0.05",
            "0.075",
            "0.1",
            "0.25",
            "0.5",
            "0.75",
            "1.0",
            "2.5",
            "5.0",
            "7.5",
            "10.0",
            "+Inf",
        ]
    )
    assert lines[-2:] == ["H_count 1.0", "H_sum 0.02"]


def test_label_sets_are_bounded() -> None:
    family = Family("f", "gauge", "", ["a"])
    for i in range(MAX_CHILDREN):
        family.child(str(i))

    with pytest.raises(ValueError, match="already"):
        family.child("one more")
    with pytest.raises(ValueError, match="labels"):
        family.child("a", "b")


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(), min_size=1, max_size=3), st.floats())
def test_text_can_be_read(values: list[str], amount: float) -> None:
    family = Family("f", "gauge", "u", [f"l{i}" for i in range(len(values))])
    family.child(*values).set(amount)
    body = "\n".join(family.render()[2:])

    assert LINE.fullmatch(body)


@settings(max_examples=100, deadline=None)
@given(st.floats(allow_nan=False))
def test_numbers(value: float) -> None:
    written = number(value)

    assert float(written) == value
    assert "." in written or math.isinf(value)


@given(st.text())
@settings(max_examples=50, deadline=None)
def test_safe_names(name: str) -> None:
    assert re.fullmatch(r"[a-zA-Z_:][a-zA-Z0-9_:]*", safe_name(name))


def test_host_samples_are_known(make: Make) -> None:
    telemetry = make()
    samples = list(host_samples())
    telemetry.system(samples)
    lines = text(telemetry).splitlines()

    assert all(name in CONTRACT["gauge"] for name, _, _ in samples)
    assert sum(not line.startswith("#") for line in lines) == 3 + 2 + len(samples)


def test_gpus(make: Make) -> None:
    telemetry = make()
    telemetry.system(parse_gpus("0, 50, 1000, 4000\n1, [N/A], 10, 0\nnonsense\n"))
    lines = text(telemetry).splitlines()

    device = f'{{Level="Host",DeviceId="0",Hostname="{HOST}",}}'
    assert f"GPUUtilization{device} 50.0" in lines
    assert f"GPUMemoryUsed{device} 1000.0" in lines
    assert f"GPUMemoryUtilization{device} 25.0" in lines
    assert not any('DeviceId="1"' in line and "Utilization" in line for line in lines)


async def test_system_metrics_are_sampled(make: Make) -> None:
    telemetry = make()
    system = SystemMetrics(telemetry, 60)
    await system.sample()
    system.start()
    await system.close()

    assert "MemoryUsed{" in text(telemetry)


def test_metric_of_a_worker_ends_with_it() -> None:
    telemetry = Telemetry(ServerConfig(metrics_mode="prometheus"))
    for n in range(3000):
        telemetry.worker_loaded(f"W-{n}-m_1.0", 12.0)
        telemetry.worker_gone(f"W-{n}-m_1.0")
    telemetry.worker_loaded("W-3000-m_1.0", 12.0)
    text = telemetry.render(["WorkerLoadTime"]).decode()
    telemetry.close()

    assert text.count("WorkerLoadTime{") == 1
    assert 'WorkerName="W-3000-m_1.0"' in text
