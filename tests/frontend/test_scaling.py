from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from marserve.frontend.scaling import PATIENCE_S, Load, ScalingPolicy

CALM = Load(now=100.0, size=2, ready=2)
BUSY = replace(CALM, busy=2, waiting=4, batch_time_s=0.01)


def policy(idle_timeout_s: float | None = None) -> ScalingPolicy:
    return ScalingPolicy(batch_size=4, scale_down_idle_s=60.0, idle_timeout_s=idle_timeout_s)


def test_nothing_to_do_changes_nothing() -> None:
    assert policy().change(CALM, 1, 4) == 0


def test_short_queue_is_no_reason() -> None:
    assert policy().change(BUSY, 1, 4) == 0


def test_lasting_queue_adds_one_worker_and_then_waits_for_it() -> None:
    scaler = policy()
    changes = []
    load = BUSY
    for tick in range(40):
        load = replace(load, now=100 + tick / 10)
        change = scaler.change(load, 1, 4)
        changes.append(change)
        load = replace(load, size=load.size + change)

    assert changes.index(1) == round(PATIENCE_S * 10)
    assert sum(changes) == 1  # it has not become ready: no more before it has


def test_growth_goes_on_once_the_new_worker_is_busy_too() -> None:
    scaler = policy()
    load = BUSY
    for tick in range(40):
        load = replace(load, now=100 + tick / 10)
        size = load.size + scaler.change(load, 1, 4)
        load = replace(load, size=size, ready=size, busy=size)

    assert load.size == 4


def test_request_that_waits_for_company_is_no_reason() -> None:
    scaler = policy()
    load = replace(BUSY, busy=1, waiting=3, waited_s=5.0)

    assert [scaler.change(replace(load, now=t), 1, 4) for t in range(100, 110)] == [0] * 10


def test_long_queue_adds_as_many_as_it_takes() -> None:
    # 40 batches of 0.1 s on 2 workers: 8 workers would do it in time, and 6 may be had.
    load = replace(BUSY, waiting=160, batch_time_s=0.1)

    assert policy().change(load, 1, 20) == 6
    assert policy().change(load, 1, 6) == 4


def test_no_more_workers_than_batches_wait() -> None:
    assert policy().change(replace(BUSY, waiting=5, batch_time_s=30.0), 1, 20) == 2


def test_idle_worker_is_given_up_down_to_the_least() -> None:
    idle = replace(CALM, idle_s=60.0)

    assert policy().change(idle, 1, 4) == -1
    assert policy().change(idle, 2, 4) == 0
    assert policy().change(replace(idle, size=1, ready=1), 0, 4) == 0  # sleeping is another matter
    assert policy().change(replace(idle, waiting=1), 1, 4) == 0


def test_extra_worker_that_never_starts_is_given_up() -> None:
    assert policy().change(replace(CALM, size=3, quiet_s=60.0), 2, 4) == -1


def test_idle_model_sleeps_only_if_asked() -> None:
    quiet = replace(CALM, quiet_s=30.0, idle_s=30.0)

    assert policy(30.0).change(quiet, 1, 4) == -2
    assert policy(31.0).change(quiet, 1, 4) == 0
    assert policy(None).change(quiet, 1, 4) == 0
    assert policy(30.0).change(replace(quiet, size=0, ready=0), 1, 4) == 0


def test_model_whose_workers_fail_does_not_fall_asleep() -> None:
    assert policy(30.0).change(replace(CALM, ready=0, quiet_s=100.0), 2, 4) == 0


def test_too_few_workers_are_filled_up() -> None:
    assert policy().change(CALM, 3, 4) == 1


LOADS = st.builds(
    Load,
    now=st.floats(0, 1e3),
    size=st.integers(0, 20),
    ready=st.integers(0, 20),
    busy=st.integers(0, 20),
    waiting=st.integers(0, 1000),
    waited_s=st.floats(0, 100),
    batch_time_s=st.floats(0, 100),
    idle_s=st.floats(0, 100),
    quiet_s=st.floats(0, 100),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(LOADS, max_size=20), st.integers(0, 5), st.integers(0, 5), st.booleans())
def test_size_stays_within_its_bounds(
    loads: list[Load], least: int, span: int, may_sleep: bool
) -> None:
    scaler = policy(50.0 if may_sleep else None)
    size = least
    for load in sorted(loads, key=lambda seen: seen.now):
        ready = min(load.ready, size)
        seen = replace(load, size=size, ready=ready, busy=min(load.busy, ready))
        size += scaler.change(seen, least, least + span)

        assert size in range(least, least + span + 1) or (may_sleep and size == 0)
        if size == 0:
            size = least  # woken
