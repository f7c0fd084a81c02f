"""Data injection: in every round, some workers share some of their samples with the others."""

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
    """The server's part: the sharing workers of a round, and their shared samples.

    Attributes:
        alpha: fraction of the workers that share.
        sharers: the workers that share in this round.
        shared: samples shared so far, by worker.
    """

    alpha: float
    sharers: frozenset[int] = frozenset()
    shared: dict[int, Samples] = field(default_factory=dict)

    def begin(self, workers: Sequence[int], rng: Generator) -> None:
        """Draw ceil(α D) of the workers for the next round; α D is computed in decimal."""
        count = ceil(Decimal(str(self.alpha)) * len(workers))
        self.sharers = frozenset(rng.choice(workers, count, replace=False).tolist())
        self.shared = {}

    def missing(self, there: Collection[int]) -> Collection[int]:
        """Return the sharers among the workers ``there`` that have not shared yet."""
        return self.sharers & frozenset(there) - self.shared.keys()

    def others(self, worker: int) -> Samples | None:
        """Return the samples shared by other workers, in worker order; None if there are none."""
        given = [some for other, some in sorted(self.shared.items()) if other != worker]
        return np.concatenate(given) if any(map(len, given)) else None


def chosen(samples: Samples, beta: float, rng: Generator) -> Samples:
    """Draw floor(β b) of a worker's b samples at random."""
    count = int(Decimal(str(beta)) * len(samples))
    return rng.choice(samples, count, replace=False)
