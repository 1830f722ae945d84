"""What a registration asks for, and under which name and version that is served."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from marserve.frontend.errors import BadRequest

if TYPE_CHECKING:
    from marserve.archiver.unpack import Archive
    from marserve.frontend.model import Model

NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_\-.]*")
_DEFAULT_VERSION = "1.0"


@dataclass(frozen=True, slots=True)
class Registration:
    """What a register call, or the start of the server, asks for; None where it says nothing.

    Args:
        url: File or directory name in the model store, or an allowed URL.
        max_batch_delay: In milliseconds.
        response_timeout: In seconds, like ``startup_timeout``.
        synchronous: Whether the caller waits for the workers.
        at_startup: Whether it is named at the start of the server.
        workers: Fewest and most workers, whatever the archive says: a snapshot knows them.
        archive: Files that are there already; ``url`` is only a name then.
        workflow: Name of the workflow that it is a node of.
    """

    url: str
    model_name: str | None = None
    handler: str | None = None
    runtime: str | None = None
    batch_size: int | None = None
    max_batch_delay: int | None = None
    initial_workers: int | None = None
    synchronous: bool = True
    response_timeout: int | None = None
    startup_timeout: int | None = None
    at_startup: bool = False
    workers: tuple[int, int] | None = None
    archive: Archive | None = None
    workflow: str | None = None


@dataclass(frozen=True, slots=True)
class Registered:
    """The outcome of a registration.

    Args:
        workers: How many workers were asked for.
        ready: Whether they can serve.
    """

    model: Model
    workers: int
    ready: bool


def identity(registration: Registration, archive: Archive) -> tuple[str, str]:
    """Returns name and version of what is registered: from the call, the archive, the URL.

    Raises:
        BadRequest: If one of them is no fit name.
    """
    manifest = archive.manifest.model
    fallback = re.sub(r"\W", "_", os.path.basename(registration.url.rstrip("/")).split(".")[0])
    name = registration.model_name or manifest.model_name or fallback
    version = manifest.model_version or _DEFAULT_VERSION
    checked_identity("model name", name)
    checked_identity("model version", version)
    return name, version


def checked_identity(what: str, value: str) -> None:
    """Refuses what can be no name or version.

    Raises:
        BadRequest: If it has other characters than a name may have.
    """
    if not NAME_PATTERN.fullmatch(value):
        raise BadRequest(f'{what} "{value}" does not match {NAME_PATTERN.pattern}')
