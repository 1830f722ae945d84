from __future__ import annotations

from pathlib import Path

import pytest

from marserve.frontend.gpus import count_gpus, device_of, devices


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, 2),
        ("", 0),
        ("-1", 0),
        ("0", 1),
        ("1,0", 2),
        ("0,-1,1", 1),
        ("0,1,2,3", 2),
        ("GPU-abc", 1),
    ],
)
def test_count(tmp_path: Path, visible: str | None, expected: int) -> None:
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}

    assert expected == count_gpus(environ, tmp_path)


def test_without_devices(tmp_path: Path) -> None:
    assert 0 == count_gpus({}, tmp_path)
    assert 0 == count_gpus({"CUDA_VISIBLE_DEVICES": "0"}, tmp_path / "absent")


@pytest.mark.parametrize(
    ("count", "chosen", "expected"),
    [
        (0, None, [None, None, None]),
        (0, [1], [None, None, None]),
        (1, None, [0, 0, 0]),
        (2, None, [0, 1, 0]),
        (4, [3, 1], [3, 1, 3]),
        (4, [], [0, 1, 2]),
    ],
)
def test_workers_take_the_devices_of_their_model_in_turn(
    count: int, chosen: list[int] | None, expected: list[int | None]
) -> None:
    among = devices(count, chosen)

    assert expected == [device_of(number, among) for number in range(3)]
