"""Data injection: in every round some workers share some of their samples with the others."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from math import ceil

import numpy as np
from numpy.random import Generator

from testbed.algorithms.base import Samples


@dataclass
class Injection:
    """The server's part: who shares in a round, and what has been shared.

    Attributes:
        alpha: share of the workers that share.
        sharers: those of this round.
        shared: what they have shared, by worker.
    """

    alpha: float
    sharers: frozenset[int] = frozenset()
    shared: dict[int, Samples] = field(default_factory=dict)

    def begin(self, workers: Sequence[int], rng: Generator) -> None:
        """Draw ceil(α D) of the workers for the next round; the product is taken in decimal."""
        count = ceil(Decimal(str(self.alpha)) * len(workers))
        self.sharers = frozenset(rng.choice(workers, count, replace=False).tolist())
        self.shared = {}

    def missing(self, there: Collection[int]) -> Collection[int]:
        """Those of the workers that are there who have not shared yet."""
        return self.sharers & frozenset(there) - self.shared.keys()

    def others(self, worker: int) -> Samples | None:
        """What others than a worker have shared, in their order; None for nothing."""
        given = [some for other, some in sorted(self.shared.items()) if other != worker]
        return np.concatenate(given) if any(map(len, given)) else None


def chosen(samples: Samples, beta: float, rng: Generator) -> Samples:
    """floor(β b) of a worker's b samples, drawn at random."""
    count = int(Decimal(str(beta)) * len(samples))
    return rng.choice(samples, count, replace=False)
