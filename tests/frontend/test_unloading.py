"""Models that come and go leave nothing behind in the server: no object, no descriptor, no task."""

from __future__ import annotations

import asyncio
import gc
import os
from collections import Counter

from tests.frontend.http_server import Server, Start

LOADS = 3


def ours() -> Counter[str]:
    """How many objects of our own classes there are, by class."""
    gc.collect()
    kinds = (type(each) for each in gc.get_objects())
    names = (f"{kind.__module__}.{kind.__qualname__}" for kind in kinds)
    return Counter(name for name in names if name.startswith("marserve."))


async def load_and_unload(server: Server) -> None:
    for _ in range(LOADS):
        path = "/models?url=echo&initial_workers=1&synchronous=true"
        assert 200 == (await server.json(path, "POST", surface="management"))[0]
        assert 200 == (await server.json("/predictions/echo"))[0]
        assert 200 == (await server.json("/models/echo", "DELETE", surface="management"))[0]


async def test_loads_and_unloads_leave_nothing(start: Start) -> None:
    server = await start()
    await load_and_unload(server)  # what is made once is made
    objects, tasks = ours(), len(asyncio.all_tasks())
    descriptors = len(os.listdir("/proc/self/fd"))

    await load_and_unload(server)
    for _ in range(100):  # pipes are closed by the loop, a moment later
        if tasks >= len(asyncio.all_tasks()) and descriptors >= len(os.listdir("/proc/self/fd")):
            break
        await asyncio.sleep(0.05)

    assert ours() - objects == Counter()
    assert descriptors >= len(os.listdir("/proc/self/fd"))
    assert tasks >= len(asyncio.all_tasks())
