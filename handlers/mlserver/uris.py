"""``mlserver.utils``: where a model's files are, and names for requests."""

from __future__ import annotations

import os
import urllib.parse
import uuid
from collections.abc import Sequence
from typing import Any

from marserve.handlers.mlserver.errors import InvalidModelURI


async def get_model_uri(settings: Any, wellknown_filenames: Sequence[str] = ()) -> str:
    """Returns the absolute path of the model's files, ``parameters.uri``.

    Args:
        settings: Of the model; relative paths begin at the folder of its file.
        wellknown_filenames: Names of which one is looked for where the path is a folder.

    Raises:
        InvalidModelURI: If there is no such file or folder.
    """
    given = settings.parameters.uri if settings.parameters is not None else None
    if not given:
        raise InvalidModelURI(settings.name)
    scheme = urllib.parse.urlparse(given).scheme
    if scheme and scheme != "file":
        return str(given)  # the runtime's own affair
    path = to_absolute_path(settings, given.removeprefix("file://") if scheme else given)
    found = _existing(path, wellknown_filenames)
    if found is None:
        raise InvalidModelURI(settings.name, given)
    return found


def _existing(path: str, names: Sequence[str]) -> str | None:
    if os.path.isfile(path):
        return path
    if os.path.isdir(path):
        inside = (os.path.join(path, name) for name in names)
        return next((name for name in inside if os.path.isfile(name)), path)
    return None


def to_absolute_path(model_settings: Any, uri: str) -> str:
    """Returns a path that is relative to the folder of the model's settings."""
    source = getattr(model_settings, "_source", None)
    folder = os.path.dirname(source) if source else os.getcwd()
    return os.path.abspath(os.path.join(folder, uri))


def generate_uuid() -> str:
    """Returns a name that no other request has."""
    return str(uuid.uuid4())


def extract_headers(response: Any) -> dict[str, str] | None:
    """Takes the headers out of an answer's parameters."""
    parameters = response.parameters
    if parameters is None or parameters.headers is None:
        return None
    headers: dict[str, str] = parameters.headers
    parameters.headers = None
    return headers


def insert_headers(parametrised: Any, headers: dict[str, str]) -> Any:
    """Puts headers into the parameters of a request or answer."""
    from marserve.handlers.mlserver.types import Parameters

    if parametrised.parameters is None:
        parametrised.parameters = Parameters()
    parametrised.parameters.headers = headers
    return parametrised
