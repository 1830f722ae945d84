from __future__ import annotations

import logging
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marserve.handlers.metric_types import Dimension, Metric, MetricTypes
from marserve.handlers.metrics import HandlerMetrics, UnknownMetric, emit_metrics
from marserve.worker import wire

MODEL = [("ModelName", "m"), ("Level", "Model")]
CONFIG = {
    "dimensions": ["ModelName"],
    "ts_metrics": {"counter": [{"name": "Requests2XX", "unit": "Count", "dimensions": []}]},
    "model_metrics": {
        "counter": [{"name": "Seen", "unit": "count", "dimensions": ["ModelName", "Kind"]}],
        "gauge": [{"name": "HandlerTime", "unit": "ms", "dimensions": ["Level", "ModelName"]}],
        "histogram": None,
    },
}


@pytest.fixture
def metrics() -> HandlerMetrics:
    made = HandlerMetrics("m", CONFIG)
    made.set_request_ids("a,b")
    return made


def test_nothing_reported_is_nothing_to_send(metrics: HandlerMetrics) -> None:
    assert [] == metrics.drain()


def test_every_kind_of_value_is_reported_with_its_unit(metrics: HandlerMetrics) -> None:
    metrics.add_metric("generic", 2, "count", metric_type=MetricTypes.HISTOGRAM)
    metrics.add_counter("counted", 3, 1, [Dimension("Kind", 7)])
    metrics.add_time("timed", 1.5, 0, "s")
    metrics.add_size("sized", 10)
    metrics.add_percent("part", 99.5)
    metrics.add_error("failed", 1, [Dimension("Kind", "x")])

    assert [
        ("generic", 2.0, "count", "histogram", MODEL, "a,b"),
        ("counted", 3.0, "count", "counter", [("Kind", "7"), *MODEL], "b"),
        ("timed", 1.5, "s", "gauge", MODEL, "a"),
        ("sized", 10.0, "MB", "gauge", MODEL, "a,b"),
        ("part", 99.5, "percent", "gauge", MODEL, "a,b"),
        (
            "failed",
            1.0,
            "",
            "counter",
            [("Kind", "x"), ("ModelName", "m"), ("Level", "Error")],
            "a,b",
        ),
    ] == metrics.drain()
    assert [] == metrics.drain()


def test_the_callers_list_of_dimensions_stays_his(metrics: HandlerMetrics) -> None:
    dimensions = [Dimension("Kind", "x")]

    metrics.add_counter("counted", 1, None, dimensions)

    assert 1 == len(dimensions)


def test_a_value_outside_of_any_batch_is_of_level_error() -> None:
    metrics = HandlerMetrics("m")

    metrics.add_counter("loads", 1)

    assert [("ModelName", "m"), ("Level", "Error")] == metrics.drain()[0][4]


def test_declared_dimensions_come_in_their_order_without_the_defaults_they_leave_out(
    metrics: HandlerMetrics,
) -> None:
    metrics.add_time("HandlerTime", 1)
    metrics.add_counter("Seen", 1, None, [Dimension("Kind", "x")])

    assert [
        [("Level", "Model"), ("ModelName", "m")],
        [("ModelName", "m"), ("Kind", "x")],
    ] == [values[4] for values in metrics.drain()]


def test_a_cached_metric_is_found_and_updated(metrics: HandlerMetrics) -> None:
    added = metrics.add_metric_to_cache("made", "ms", ["A", "B"], MetricTypes.GAUGE)
    added.add_or_update(1, [1, "two"], request_id="a")
    metrics.get_metric("made", MetricTypes.GAUGE).update(
        2, "b", [Dimension("A", 3), Dimension("B", 4)]
    )

    assert added is metrics.cache[MetricTypes.GAUGE]["made"]
    assert [
        ("made", 1.0, "ms", "gauge", [("A", "1"), ("B", "two")], "a"),
        ("made", 2.0, "ms", "gauge", [("A", "3"), ("B", "4")], "b"),
    ] == metrics.drain()


def test_the_same_name_may_be_of_several_kinds(metrics: HandlerMetrics) -> None:
    metrics.add_metric("one", 1, "count", metric_type=MetricTypes.GAUGE)
    metrics.add_metric("one", 1, "count", metric_type="counter")

    assert ["gauge", "counter"] == [values[3] for values in metrics.drain()]


def test_an_unknown_metric_is_named(metrics: HandlerMetrics) -> None:
    with pytest.raises(UnknownMetric, match="no histogram named 'absent'"):
        metrics.get_metric("absent", MetricTypes.HISTOGRAM)
    with pytest.raises(KeyError):
        metrics.get_metric("HandlerTime")  # it is a gauge


def test_a_second_definition_keeps_the_first(metrics: HandlerMetrics) -> None:
    first = metrics.get_metric("Seen")

    assert first is metrics.add_metric_to_cache("Seen", "ms", ["Other"])
    assert ["ModelName", "Kind"] == first.dimension_names


@pytest.mark.parametrize(
    ("report", "reason"),
    [
        (lambda m: m.add_counter("c", -1), "a counter only grows"),
        (lambda m: m.add_counter("c", float("nan")), "a counter only grows"),
        (lambda m: m.add_time("t", "soon"), "expected a number"),
        (lambda m: m.add_time("t", None), "expected a number"),
        (lambda m: m.add_time("t", 1, None, "minutes"), "'minutes' is none of ms, s"),
        (lambda m: m.add_size("s", 1, None, "ms"), "'ms' is none of B, kB, MB, GB"),
        (lambda m: m.add_counter("Seen", 1), "expected the dimensions"),
        (lambda m: m.add_time("HandlerTime", 1, dimensions=[Dimension("X", 1)]), "expected the"),
        (lambda m: m.get_metric("Seen").add_or_update(1, ["m"]), "expected values"),
    ],
)
def test_a_wrong_report_is_logged_once_and_left_out(
    metrics: HandlerMetrics, report: Any, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        report(metrics)
        report(metrics)

    assert [] == metrics.drain()
    assert 1 == len(caplog.records)
    assert reason in caplog.text


def test_unlisted_metrics_can_be_refused(caplog: pytest.LogCaptureFixture) -> None:
    metrics = HandlerMetrics("m", CONFIG, auto_detect=False)

    metrics.add_counter("unlisted", 1)
    metrics.add_time("HandlerTime", 1)

    assert ["HandlerTime"] == [values[0] for values in metrics.drain()]
    assert "is no counter of metrics.yaml" in caplog.text


def test_request_ids_are_set_by_text_or_mapping() -> None:
    metrics = HandlerMetrics("m")
    before = metrics.request_ids
    metrics.set_request_ids("a,b")
    by_text = metrics.request_ids
    metrics.request_ids = {0: "c"}

    assert (None, {0: "a", 1: "b"}, {0: "c"}) == (before, by_text, metrics.request_ids)


def test_values_made_by_the_handler_are_reported(metrics: HandlerMetrics) -> None:
    made = Metric("own", 1, "ms", [Dimension("Level", "Host")], "a")
    counted = Metric("sum", 1, "count", [], metric_method="counter")
    counted.update(2)
    made.update(5)

    emit_metrics([made])
    metrics.store.append(counted)

    assert "own.Milliseconds:5|#Level:Host" == str(made)
    assert [
        ("own", 5.0, "Milliseconds", "gauge", [("Level", "Host")], "a"),
        ("sum", 3.0, "Count", "counter", [], ""),
    ] == metrics.drain()


def test_the_store_is_not_reported_twice(metrics: HandlerMetrics) -> None:
    metrics.store.append(Metric("own", 1, "ms"))

    emit_metrics(metrics.store)
    emit_metrics(metrics)
    emit_metrics(None)

    assert 1 == len(metrics.drain())


def test_threads_lose_nothing(metrics: HandlerMetrics) -> None:
    def report() -> None:
        for _ in range(500):
            metrics.add_counter("counted", 1)

    threads = [threading.Thread(target=report) for _ in range(4)]
    drained = []
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        drained += metrics.drain()
    for thread in threads:
        thread.join()

    assert 2000 == len(drained + metrics.drain())


def test_reports_without_end_do_not_fill_the_memory(metrics: HandlerMetrics) -> None:
    for _ in range(100_010):
        metrics.report("c", 1, "count", "counter", [])

    assert 100_000 == len(metrics.drain())


@given(
    name=st.text(),
    value=st.one_of(st.integers(), st.floats(), st.text(), st.none(), st.booleans()),
    unit=st.one_of(st.none(), st.text()),
    kind=st.sampled_from(MetricTypes),
    dimensions=st.lists(st.builds(Dimension, st.text(), st.integers() | st.text())),
)
@settings(max_examples=60, deadline=None)
def test_whatever_is_reported_can_cross_the_wire(
    name: str, value: Any, unit: str | None, kind: MetricTypes, dimensions: list[Dimension]
) -> None:
    metrics = HandlerMetrics("m")
    metrics.add_metric(name, value, unit, None, dimensions, kind)
    samples = [wire.Sample(*values) for values in metrics.drain()]

    frame = b"".join(map(bytes, wire.encode(wire.Metrics(samples))))
    [(message, _)] = wire.Decoder().feed(frame)

    assert isinstance(message, wire.Metrics)
    assert [s.name for s in samples] == [s.name for s in message.samples]
