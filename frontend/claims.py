"""Which versions are about to be registered: two calls for one must not both go on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from marserve.frontend.errors import Conflict
from marserve.frontend.versions import Versions


class Claims:
    """Names and versions that somebody is making a model for."""

    def __init__(self) -> None:
        self._held: set[tuple[str, str]] = set()

    @contextmanager
    def hold(self, name: str, version: str, registered: Versions | None) -> Iterator[None]:
        """Claims a version while its model is made.

        Args:
            name: Of the model.
            version: Of the model.
            registered: Those that the name has; None for none that would be in the way.

        Raises:
            Conflict: If there is that version, or somebody else is making it.
        """
        claim = (name, version)
        if claim in self._held or (registered is not None and version in registered.models):
            raise Conflict(f"Model version {version} is already registered for model {name}")
        self._held.add(claim)
        try:
            yield
        finally:
            self._held.discard(claim)
