"""Which version answers a request that names none: shares of the traffic, drawn at random."""

from __future__ import annotations

import itertools
import random
from bisect import bisect_right
from collections.abc import Callable, Mapping


class Split:
    """Draws versions in proportion to their weights.

    Args:
        weights: Versions and their weights, not negative, at least one of them positive.
        rng: Gives numbers from 0 up to, not including, 1.
    """

    def __init__(
        self, weights: Mapping[str, float], rng: Callable[[], float] = random.random
    ) -> None:
        self.weights = dict(weights)
        self._rng = rng
        drawn = {version: weight for version, weight in self.weights.items() if weight > 0}
        self._versions = list(drawn)
        self._bounds = list(itertools.accumulate(drawn.values()))

    def draw(self) -> str:
        """Returns a version, whether it can serve or not."""
        at = bisect_right(self._bounds, self._rng() * self._bounds[-1])
        return self._versions[min(at, len(self._versions) - 1)]

    def pick(self, able: Callable[[str], bool], default: str) -> str:
        """Returns the version that should answer.

        The share of a version that cannot serve now goes to the default one, not to the others: a
        canary is never sent more than it was meant to get.

        Args:
            able: Tells whether a version can take a request now.
            default: Answers in the place of those that cannot.
        """
        version = self.draw()
        return version if version == default or able(version) else default

    def without(self, version: str) -> Split | None:
        """Returns the split of the other versions; None if nothing is left to split."""
        rest = {name: weight for name, weight in self.weights.items() if name != version}
        return Split(rest, self._rng) if any(rest.values()) else None
