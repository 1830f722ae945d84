"""System shared memory: regions that clients made, read and written in the place of bodies.

Regions are read and written as files, never mapped: a client that makes one shorter meanwhile gets
an error, where a mapping would end the server. Nothing is ever created here.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeGuard

from marserve.frontend.errors import BadRequest, ResourceNotFound, TooLarge

if TYPE_CHECKING:
    from collections.abc import Mapping

    from marserve.frontend.config import ServerConfig
    from marserve.worker.wire import Buffer

REGION, OFFSET, SIZE = "shared_memory_region", "shared_memory_offset", "shared_memory_byte_size"
PARAMETERS = frozenset({REGION, OFFSET, SIZE})
"""Those of a tensor whose bytes are in a region."""
_DIRECTORY = "/dev/shm"  # noqa: S108  (where POSIX shared memory is)
_KEY = re.compile(r"/?[^/\0]{1,250}")
_MOST_REGIONS = 1024


class UnknownRegion(ResourceNotFound):
    """No such region is registered."""

    def __init__(self, name: str) -> None:
        super().__init__(f"shared memory region '{name:.100}' is not registered")


@dataclass(slots=True, frozen=True)
class Region:
    """A registered region.

    Args:
        key: Name of the shared memory object.
        offset: Where the region begins in it, bytes.
        size: Bytes.
        file: Descriptor.
    """

    key: str
    offset: int
    size: int
    file: int


class Regions:
    """The regions that clients have registered.

    Args:
        config: ``allow_client_shm`` and ``max_request_size`` are read.
    """

    def __init__(self, config: ServerConfig) -> None:
        self._config = config
        self._regions: dict[str, Region] = {}

    def register(self, name: str, key: str, offset: int, size: int) -> None:
        """Opens a shared memory object.

        Raises:
            BadRequest: If there is no such object, it is too small, or the name is taken.
        """
        self._check_allowed()
        if name in self._regions:
            raise BadRequest(f"shared memory region '{name:.100}' is registered already")
        if len(self._regions) >= _MOST_REGIONS:
            raise BadRequest(f"{_MOST_REGIONS} shared memory regions are registered, the most")
        if not name or not _KEY.fullmatch(key) or key.strip("/.") == "":
            raise BadRequest("expected the name of a region, and the key of a shared memory object")
        if offset < 0 or size <= 0:
            raise BadRequest("expected an offset of 0 or above and a byte_size above 0")
        self._regions[name] = Region(key, offset, size, _open(key, offset + size))

    def unregister(self, name: str | None = None) -> None:
        """Forgets a region, or all; one that is not there is no error."""
        self._check_allowed()
        for each in [name] if name is not None else list(self._regions):
            region = self._regions.pop(each, None)
            if region is not None:
                os.close(region.file)

    def status(self, name: str | None = None) -> list[dict[str, Any]]:
        """Returns name, key, offset and size of a region, or of all.

        Raises:
            UnknownRegion: If there is no such region.
        """
        self._check_allowed()
        if name is not None and name not in self._regions:
            raise UnknownRegion(name)
        return [
            {"name": each, "key": region.key, "offset": region.offset, "byte_size": region.size}
            for each, region in sorted(self._regions.items())
            if name in (None, each)
        ]

    def read(self, tensor: str, parameters: Mapping[str, Any]) -> bytes:
        """Returns the bytes of an input.

        Args:
            tensor: Name, for errors.
            parameters: Its own, which name a region.

        Raises:
            BadRequest: If the region is unknown, or has no such bytes.
            TooLarge: If they are more than ``max_request_size``.
        """
        what = f"input '{tensor}'"
        region, at, size = self._place(what, parameters)
        limit = self._config.max_request_size
        if size > limit:
            raise TooLarge(f"{what} has {size} bytes; the limit is {limit} (max_request_size)")
        data = os.pread(region.file, size, at)
        if len(data) < size:
            raise BadRequest(f"{what}: its shared memory has become shorter than was registered")
        return data

    def write(self, tensor: str, data: Buffer, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Writes an output to its region; returns the parameters that tell so.

        Args:
            tensor: Name, for errors.
            data: What is written.
            parameters: Of the output that is asked for.

        Raises:
            BadRequest: If the region is unknown, or too small.
        """
        what = f"output '{tensor}'"
        region, at, size = self._place(what, parameters)
        if len(data) > size:
            raise BadRequest(f"{what} has {len(data)} bytes; its shared memory has {size}")
        if os.fstat(region.file).st_size < at + len(data):
            raise BadRequest(f"{what}: its shared memory has become shorter than was registered")
        view = memoryview(data)
        while view:
            count = os.pwrite(region.file, view, at)
            view, at = view[count:], at + count
        told = {REGION: parameters[REGION], SIZE: len(data)}
        return told | ({OFFSET: parameters[OFFSET]} if parameters.get(OFFSET) else {})

    def close(self) -> None:
        """Forgets all regions."""
        for region in self._regions.values():
            os.close(region.file)
        self._regions.clear()

    def _check_allowed(self) -> None:
        if not self._config.allow_client_shm:
            raise BadRequest("shared memory is off: set allow_client_shm in config.properties")

    def _place(self, what: str, parameters: Mapping[str, Any]) -> tuple[Region, int, int]:
        self._check_allowed()
        name = parameters.get(REGION)
        region = self._regions.get(name) if isinstance(name, str) else None
        if region is None:
            raise BadRequest(f"{what}: shared memory region '{name!s:.100}' is not registered")
        offset: Any = parameters.get(OFFSET, 0)
        size: Any = parameters.get(SIZE)
        if not _is_count(offset) or not _is_count(size):
            raise BadRequest(f"{what}: {OFFSET} and {SIZE} must be whole numbers, 0 or above")
        if offset + size > region.size:
            raise BadRequest(
                f"{what}: {size} bytes at {offset} are not in shared memory region '{name}', which"
                f" has {region.size}"
            )
        return region, region.offset + offset, size


def _is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _open(key: str, needed: int) -> int:
    """Opens a shared memory object that has so many bytes."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        file = os.open(f"{_DIRECTORY}/{key.removeprefix('/')}", flags)
    except (OSError, ValueError):
        raise BadRequest(
            f"shared memory object '{key:.100}' is not there, or not this server's to use"
        ) from None
    status = os.fstat(file)
    if not stat.S_ISREG(status.st_mode) or status.st_size < needed:
        os.close(file)
        raise BadRequest(
            f"shared memory object '{key:.100}' has {status.st_size} bytes; expected {needed} at"
            " least"
        )
    return file
