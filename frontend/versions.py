"""The versions of one model name, and which of them gets a request that names none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from marserve.frontend.errors import VersionNotFound
from marserve.frontend.mirror import Mirror
from marserve.frontend.traffic import Split

if TYPE_CHECKING:
    from marserve.frontend.metrics import Telemetry
    from marserve.frontend.model import Model


class Versions:
    """The versions of one name.

    Args:
        default: Answers where no version is given.

    Attributes:
        models: All versions.
        split: Shares of the traffic; None as long as the default version gets all of it.
    """

    def __init__(self, default: str) -> None:
        self.default = default
        self.models: dict[str, Model] = {}
        self.split: Split | None = None
        self._mirror: Mirror | None = None

    def route(self, split: Split) -> Model:
        """Returns the version for the next request that names none."""
        return self.models[split.pick(self._able, self.default)]

    def direct(
        self, weights: Mapping[str, float] | None, shadow: str | None, telemetry: Telemetry
    ) -> None:
        """Sets the rules for requests that name no version, in place of earlier ones.

        Args:
            weights: Shares of versions; None to leave all to the default one.
            shadow: Version that gets a copy of each request; None for no copies.
            telemetry: Counts the copies.

        Raises:
            VersionNotFound: If there is no such version.
        """
        for version in (*(weights or ()), *([] if shadow is None else [shadow])):
            if version not in self.models:
                raise VersionNotFound(f"There is no version {version}; there are {[*self.models]}.")
        mirror = None
        if shadow is not None:
            model = self.models[shadow]
            mirror = Mirror(model, *telemetry.mirrored(model.name, shadow))
        self._set(Split(weights) if weights else None, mirror)

    def _set(self, split: Split | None, mirror: Mirror | None) -> None:
        self.split = split
        self._mirror = mirror
        for model in self.models.values():
            model.mirror = mirror if mirror is not None and model is not mirror.shadow else None

    def set_default(self, version: str) -> None:
        """Gives all traffic to one version; earlier rules are over."""
        self.default = version
        self._set(None, None)

    def add(self, model: Model) -> None:
        """A version was registered; it gets no traffic by itself."""
        self.models[model.version] = model
        model.mirror = self._mirror
        model.successor = lambda: self.models.get(self.default)

    def remove(self, version: str) -> None:
        """Forgets a version and what the rules say of it."""
        gone = self.models.pop(version)
        if version == self.default and self.models:
            self.default = next(iter(self.models))  # it did not load; the oldest takes over
        if self.split is not None:
            self.split = self.split.without(version)
        if self._mirror is not None and self._mirror.shadow is gone:
            self._set(self.split, None)

    def succeeded_by(self, other: Versions) -> list[Model]:
        """Hands over to other versions of the name, with the default and rules that still hold.

        Returns:
            The models that are to end; what they cannot begin any more goes to the others.
        """
        if self.default in other.models:
            other.default = self.default
        split, mirror = self.split, self._mirror
        if split is not None and not split.weights.keys() <= other.models.keys():
            split = None
        if mirror is not None:
            shadow = other.models.get(mirror.shadow.version)
            mirror = mirror.onto(shadow) if shadow is not None else None
        other._set(split, mirror)
        for model in self.models.values():
            model.mirror = None
            model.successor = lambda: other.models.get(other.default)
        return [*self.models.values()]

    def describe_rules(self) -> dict[str, Any]:
        """Returns the rules as the API shows them; what is not set is left out."""
        rules: dict[str, Any] = {}
        if self.split is not None:
            rules["weights"] = self.split.weights
        if (mirror := self._mirror) is not None:
            rules["shadow"] = mirror.shadow.version
            rules["shadowRequests"], rules["shadowFailures"] = mirror.sent, mirror.failed
        return rules

    def describe_share(self, version: str) -> dict[str, Any]:
        """Returns what the rules give to one version; empty without rules."""
        share: dict[str, Any] = {}
        if self.split is not None:
            share["weight"] = self.split.weights.get(version, 0)
        if self._mirror is not None and self._mirror.shadow.version == version:
            share["shadow"] = True
        return {"traffic": share} if share else {}

    def _able(self, version: str) -> bool:
        """Whether a version can take a request now; one that sleeps is woken for the next."""
        model = self.models[version]
        if model.draining or not model.pool.ready:
            model.scaler.wake()
            return False
        return model.queue.remaining > 0
