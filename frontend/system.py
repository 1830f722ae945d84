"""Gauges of the machine: processor, memory, disk and NVIDIA devices, sampled by a timer."""

from __future__ import annotations

import asyncio
import logging
import shutil
import subprocess
from collections.abc import Iterator, Mapping

import psutil

from marserve.frontend.metrics import Telemetry

logger = logging.getLogger(__name__)

Sample = tuple[str, Mapping[str, str], float]

_MB, _GB = 1 << 20, 1 << 30
_GPU_QUERY = (
    "--query-gpu=index,utilization.gpu,memory.used,memory.total",
    "--format=csv,noheader,nounits",
)
_GPU_TIMEOUT_S = 10.0


def host_samples() -> Iterator[Sample]:
    """Yields name, dimensions and value of processor, memory and disk.

    The processor's share is that since the last call; the first one's is 0.
    """
    yield "CPUUtilization", {}, psutil.cpu_percent(interval=None)
    memory = psutil.virtual_memory()
    yield "MemoryAvailable", {}, memory.available / _MB
    yield "MemoryUsed", {}, memory.used / _MB
    yield "MemoryUtilization", {}, memory.percent
    disk = psutil.disk_usage("/")
    yield "DiskAvailable", {}, disk.free / _GB
    yield "DiskUsage", {}, disk.used / _GB
    yield "DiskUtilization", {}, disk.percent


def parse_gpus(text: str) -> Iterator[Sample]:
    """Yields the samples in ``nvidia-smi``'s table; what a device does not tell is left out."""
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != 4:
            continue
        index, *rest = cells
        busy, used, total = (float(cell) if _is_number(cell) else None for cell in rest)
        device = {"DeviceId": index}
        if busy is not None:
            yield "GPUUtilization", device, busy
        if used is not None:
            yield "GPUMemoryUsed", device, used
            if total:
                yield "GPUMemoryUtilization", device, 100 * used / total


class SystemMetrics:
    """Samples the machine at an interval, without ever stopping the event loop.

    Args:
        telemetry: Receives the samples.
        interval_s: Seconds between samples.
    """

    def __init__(self, telemetry: Telemetry, interval_s: float) -> None:
        self._telemetry = telemetry
        self._interval_s = interval_s
        self._smi = shutil.which("nvidia-smi")
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Takes the first sample and starts the timer."""
        self._task = asyncio.create_task(self._run(), name="system metrics")

    async def close(self) -> None:
        """Stops the timer."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def sample(self) -> None:
        """Takes one sample."""
        self._telemetry.system(await asyncio.to_thread(lambda: list(host_samples())))
        if self._smi is not None:
            text = await asyncio.to_thread(self._ask_devices, self._smi)
            self._telemetry.system(list(parse_gpus(text)))

    async def _run(self) -> None:
        while True:
            try:
                await self.sample()
            except OSError as error:
                logger.warning("system metrics cannot be read: %s", error)
            await asyncio.sleep(self._interval_s)

    def _ask_devices(self, program: str) -> str:
        """The driver's table; without one that works, the devices are not asked again."""
        try:
            done = subprocess.run(
                [program, *_GPU_QUERY],
                capture_output=True,
                text=True,
                timeout=_GPU_TIMEOUT_S,
                check=True,
            )
        except (OSError, subprocess.SubprocessError) as error:
            logger.warning("nvidia-smi does not work, there will be no GPU metrics: %s", error)
            self._smi = None
            return ""
        return done.stdout


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdigit()
