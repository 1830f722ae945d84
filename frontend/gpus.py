"""How many GPUs the workers can have, and which one each takes, without importing torch."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

_DEVICE = re.compile(r"nvidia[0-9]+")


def count_gpus(environ: Mapping[str, str], devices: Path = Path("/dev")) -> int:
    """Returns the number of NVIDIA GPUs that this process may use.

    Args:
        environ: ``CUDA_VISIBLE_DEVICES`` limits the number.
        devices: Where the driver puts its device files; a container has those it was given.
    """
    try:
        found = sum(_DEVICE.fullmatch(entry.name) is not None for entry in devices.iterdir())
    except OSError:
        return 0
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return found
    # CUDA reads the list up to the first entry that names no device, such as -1.
    count = 0
    for entry in visible.split(","):
        if not entry.strip() or entry.strip().startswith("-"):
            break
        count += 1
    return min(found, count)


def devices(count: int, chosen: Sequence[int] | None) -> tuple[int, ...]:
    """Returns the indices of the GPUs that a model may use; none if it runs on the CPU.

    Args:
        count: How many there are for it.
        chosen: ``deviceIds`` of model-config.yaml, in its order; all if there are none.
    """
    if not count:
        return ()
    return tuple(chosen or range(count))


def device_of(number: int, among: Sequence[int]) -> int | None:
    """Returns the GPU of a model's worker: workers take theirs in turn; None for the CPU."""
    return among[number % len(among)] if among else None
