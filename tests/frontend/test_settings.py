from __future__ import annotations

from pathlib import Path

import pytest

from marserve.archiver.model_config import parse_model_config
from marserve.frontend.config import ServerConfig, load_config
from marserve.frontend.model_defaults import ModelDefaults
from marserve.frontend.registration import Registration
from marserve.frontend.settings import ModelSettings, resolve_settings


def server(tmp_path: Path, **keys: object) -> ServerConfig:
    file = tmp_path / "config.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
    return load_config({"model_store": str(tmp_path), "ts_config": str(file)}, {}, tmp_path)


def resolve(
    tmp_path: Path,
    call: dict[str, int] | None = None,
    yaml: dict[str, object] | None = None,
    properties: ModelDefaults | None = None,
    at_startup: bool = False,
    **keys: object,
) -> ModelSettings:
    registration = Registration("m.mar", at_startup=at_startup, **(call or {}))  # type: ignore[arg-type]
    config = parse_model_config(yaml or {})
    return resolve_settings(
        registration, config, properties or ModelDefaults(), server(tmp_path, **keys)
    )


@pytest.mark.parametrize(
    ("call", "yaml", "properties", "expected"),
    [
        ({"batch_size": 4}, {"batchSize": 3}, ModelDefaults(batch_size=2), 4),
        ({}, {"batchSize": 3}, ModelDefaults(batch_size=2), 3),
        ({}, {}, ModelDefaults(batch_size=2), 2),
        ({}, {}, ModelDefaults(), 1),
    ],
)
def test_the_call_wins_over_yaml_over_properties(
    tmp_path: Path,
    call: dict[str, int],
    yaml: dict[str, object],
    properties: ModelDefaults,
    expected: int,
) -> None:
    settings = resolve(tmp_path, call, yaml, properties)

    assert expected == settings.batch_size


def test_a_delay_of_zero_is_a_delay(tmp_path: Path) -> None:
    assert 0 == resolve(tmp_path, {"max_batch_delay": 0}).max_batch_delay_ms
    assert 0 == resolve(tmp_path, yaml={"maxBatchDelay": 0}).max_batch_delay_ms
    assert 100 == resolve(tmp_path).max_batch_delay_ms


def test_a_yaml_without_a_timeout_leaves_the_servers_in_force(tmp_path: Path) -> None:
    settings = resolve(tmp_path, yaml={"batchSize": 2}, default_response_timeout=7)

    assert 7 == settings.response_timeout_s


def test_workers_of_the_yaml_win_over_the_call(tmp_path: Path) -> None:
    settings = resolve(tmp_path, {"initial_workers": 5}, {"minWorkers": 2, "maxWorkers": 3})

    assert (2, 3) == (settings.min_workers, settings.max_workers)


def test_workers_of_the_properties_count_at_start(tmp_path: Path) -> None:
    properties = ModelDefaults(min_workers=3, max_workers=4)

    settings = resolve(tmp_path, properties=properties, at_startup=True)

    assert (3, 4) == (settings.min_workers, settings.max_workers)


def test_a_register_call_starts_no_workers_unless_told(tmp_path: Path) -> None:
    assert 0 == resolve(tmp_path).min_workers
    assert 2 == resolve(tmp_path, default_workers_per_model=2).min_workers


@pytest.mark.parametrize(("yaml", "expected"), [({}, True), ({"retryInFlight": False}, False)])
def test_retry_in_flight_is_on_unless_switched_off(
    tmp_path: Path, yaml: dict[str, object], expected: bool
) -> None:
    assert resolve(tmp_path, yaml=yaml).retry_in_flight is expected


def test_use_job_ticket_is_off_unless_switched_on(tmp_path: Path) -> None:
    assert not resolve(tmp_path).use_job_ticket
    assert resolve(tmp_path, yaml={"useJobTicket": True}).use_job_ticket


@pytest.mark.parametrize(
    ("yaml", "expected"),
    [
        ({}, 0),
        ({"continuousBatching": True}, 8),
        ({"continuousBatching": True, "sequenceBatching": True}, 16),
        ({"asyncCommunication": True}, 50),
    ],
)
def test_how_many_requests_a_worker_runs_at_a_time(
    tmp_path: Path, yaml: dict[str, object], expected: int
) -> None:
    settings = resolve(tmp_path, yaml={"batchSize": 8, "jobQueueSize": 50} | yaml)

    assert settings.concurrency == expected


def test_sequences(tmp_path: Path) -> None:
    yaml: dict[str, object] = {
        "sequenceBatching": True,
        "sequenceMaxIdleMSec": 1500,
        "maxNumSequence": 4,
    }

    sequences = resolve(tmp_path, yaml=yaml).sequences

    assert sequences is not None
    assert (sequences.most, sequences.queue_size) == (4, 1)
    assert (sequences.idle_s, sequences.total_s) == (1.5, float("inf"))
    assert sequences.id == "ts_request_sequence_id"


@pytest.mark.parametrize(
    ("gpus", "yaml", "expected"),
    [
        (0, {}, "cpu"),
        (0, {"deviceType": "gpu"}, "cpu"),
        (1, {}, "gpu"),
        (1, {"deviceType": "cpu"}, "cpu"),
    ],
)
def test_the_device_is_the_one_that_workers_get(
    tmp_path: Path, gpus: int, yaml: dict[str, object], expected: str
) -> None:
    assert resolve(tmp_path, yaml=yaml, number_of_gpu=gpus).device_type == expected
