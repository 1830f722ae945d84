"""``mlserver.settings``: what a runtime is told of its model, a model-settings.json as a record."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any, ClassVar, Self

from marserve.handlers.mlserver.records import Record
from marserve.handlers.mlserver.types import MetadataTensor


class ModelParameters(Record):
    """The section ``parameters``; any other key is an attribute as well."""

    extra_fields: ClassVar[bool] = True
    uri: str | None = None
    version: str | None = None
    environment_path: str | None = None
    environment_tarball: str | None = None
    inference_pool_gid: str | None = None
    autogenerate_inference_pool_gid: bool = False
    format: str | None = None
    content_type: str | None = None
    extra: dict[str, Any] | None = {}  # noqa: RUF012  # copied for each record


class ModelSettings(Record):
    """A model-settings.json; keys that are none are ignored.

    Args:
        implementation: The runtime's class, or its import path.
    """

    extra_fields: ClassVar[bool] = False
    implementation_: str = ""
    name: str = ""
    platform: str = ""
    versions: list[str] = []  # noqa: RUF012
    inputs: list[MetadataTensor] = []  # noqa: RUF012
    outputs: list[MetadataTensor] = []  # noqa: RUF012
    parallel_workers: int | None = None
    warm_workers: bool = False
    max_batch_size: int = 0
    max_batch_time: float = 0.0
    parameters: ModelParameters | None = None
    cache_enabled: bool = False

    def __init__(self, implementation: Any = None, **values: Any) -> None:
        self.__dict__["_source"] = None
        if isinstance(implementation, type):
            values["implementation_"] = f"{implementation.__module__}.{implementation.__qualname__}"
        elif implementation is not None:
            values["implementation_"] = implementation
        super().__init__(**values)
        self.__dict__["_class"] = implementation if isinstance(implementation, type) else None

    @property
    def implementation(self) -> Any:
        """The runtime's class, imported."""
        found = self.__dict__["_class"]
        if found is None:
            module, _, name = self.implementation_.rpartition(".")
            found = getattr(importlib.import_module(module), name)
        return found

    @property
    def version(self) -> str | None:
        """Of the model."""
        return self.parameters.version if self.parameters is not None else None

    @classmethod
    def parse_file(cls, path: str) -> Self:
        """Reads a model-settings.json, and remembers where it is."""
        settings = cls.model_validate(json.loads(Path(path).read_bytes()))
        settings._source = path
        return settings


class Settings(Record):
    """A settings.json; what of it counts is decided when the server starts."""

    extra_fields: ClassVar[bool] = True
    debug: bool = False
    parallel_workers: int = 1
    server_name: str = "marserve"
    server_version: str = ""
