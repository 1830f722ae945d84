from __future__ import annotations

import socket
from pathlib import Path

import pytest

from marserve.archiver.model_config import parse_model_config
from marserve.frontend.config import load_config
from marserve.frontend.model_defaults import ModelDefaults
from marserve.frontend.ranks import RankPlan, hold_port, plan_ranks, rank_environment
from marserve.frontend.registration import Registration
from marserve.frontend.settings import resolve_settings


@pytest.mark.parametrize(
    ("yaml", "expected"),
    [
        ({}, None),
        ({"parallelType": "tp"}, None),
        ({"torchrun": {"nproc-per-node": 4}}, None),
        ({"parallelType": "tp", "parallelLevel": 2}, RankPlan("tp", 2)),
        ({"parallelType": "pp", "torchrun": {"nproc-per-node": 3}}, RankPlan("pp", 3)),
        (
            {"parallelType": "tp", "torchrun": {"nproc-per-node": 2, "OMP_NUMBER_THREADS": 5}},
            RankPlan("tp", 2, 5),
        ),
        ({"handler": {"model_parallel": True}, "parallelLevel": 2}, RankPlan("tp", 2)),
    ],
)
def test_a_worker_is_several_processes_if_type_and_level_say_so(
    yaml: dict[str, object], expected: RankPlan | None
) -> None:
    assert expected == plan_ranks(parse_model_config(yaml))


@pytest.mark.parametrize(
    ("yaml", "gpus", "expected"),
    [
        ({"handler": {"model_parallel": True}}, 0, None),
        ({"handler": {"model_parallel": True}}, 1, None),
        ({"handler": {"model_parallel": True}}, 4, RankPlan("tp", 4)),
        ({"handler": {"model_parallel": True}, "parallelType": "pp"}, 4, RankPlan("pp", 4)),
        ({"handler": {"model_parallel": True}, "parallelLevel": 2}, 4, RankPlan("tp", 2)),
        ({"handler": {"model_parallel": False}}, 4, None),
        ({"parallelType": "tp"}, 4, None),
    ],
)
def test_model_parallel_alone_means_all_gpus(
    yaml: dict[str, object], gpus: int, expected: RankPlan | None
) -> None:
    assert expected == plan_ranks(parse_model_config(yaml), gpus)


def test_a_handler_of_kind_custom_starts_its_own_ranks() -> None:
    plan = plan_ranks(parse_model_config({"parallelType": "custom", "parallelLevel": 4}))

    assert plan is not None
    assert (1, 4) == (plan.processes, plan.level)


def test_groups_of_devices_are_taken_in_turn() -> None:
    plan, ids = RankPlan("tp", 2), (0, 1, 4, 5, 7)

    assert [(0, 1), (4, 5), (0, 1)] == [plan.devices(worker, ids) for worker in range(3)]


def test_every_rank_finds_what_torchrun_would_tell_it(tmp_path: Path) -> None:
    variables = rank_environment(RankPlan("tp", 2, 3), "W-1-m_1.0", 1, 29500, tmp_path)

    assert "1 1 2 2 0 127.0.0.1 29500 3" == " ".join(
        variables[name]
        for name in [
            "RANK",
            "LOCAL_RANK",
            "WORLD_SIZE",
            "LOCAL_WORLD_SIZE",
            "GROUP_RANK",
            "MASTER_ADDR",
            "MASTER_PORT",
            "OMP_NUM_THREADS",
        ]
    )


def test_a_port_that_is_held_can_be_listened_on_by_rank_0_alone() -> None:
    with hold_port() as held:
        port = held.getsockname()[1]
        with socket.socket() as rank_0, socket.socket() as other:
            rank_0.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            rank_0.bind(("127.0.0.1", port))
            rank_0.listen()

            with pytest.raises(OSError, match="in use"):
                other.bind(("127.0.0.1", port))


def test_no_more_workers_start_than_there_are_groups_of_devices(tmp_path: Path) -> None:
    (tmp_path / "config.properties").write_text("number_of_gpu=5\n")
    properties = {"model_store": str(tmp_path), "ts_config": str(tmp_path / "config.properties")}
    server = load_config(properties, {}, tmp_path)
    yaml = {"minWorkers": 3, "maxWorkers": 8, "parallelType": "tp", "parallelLevel": 2}

    on_gpu, on_cpu = (
        resolve_settings(
            Registration("m.mar"), parse_model_config(yaml | more), ModelDefaults(), server
        )
        for more in ({}, {"deviceType": "cpu"})
    )

    assert (2, 2) == (on_gpu.min_workers, on_gpu.max_workers)
    assert (3, 8) == (on_cpu.min_workers, on_cpu.max_workers)
