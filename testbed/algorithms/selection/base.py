"""What every selection has: options in a scenario, and a choice of workers for a round."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isfinite, nan, sqrt
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.random import Generator

from testbed.algorithms.base import Update
from testbed.algorithms.parts.rounds import own
from testbed.payloads.notes import number
from testbed.values.fields import StrictModel

SelectionState: TypeAlias = dict[str, Any]
"""What a selection remembers between rounds, by name; empty before the first."""


@dataclass
class History:
    """What a server has seen of its workers; a selection knows nothing else. All by worker.

    Attributes:
        round: number of the current round, from 1.
        participants: workers whose updates were in the last round.
        samples: its weight in the mean of its last round, see ``own`` in ``parts/rounds.py``.
        losses: mean loss of its batches, as it reported with its last update.
        squared_losses: mean of their squares.
        durations: emulated seconds from the last reply to the push that followed.
        last: the last round in which an update of the worker arrived.
        chosen: number of rounds that it was chosen for.
        delivered: number of rounds in which its update arrived in time.
        connected: number of rounds at whose beginning it was connected.
    """

    round: int = 0
    participants: list[int] = field(default_factory=list)
    samples: dict[int, int] = field(default_factory=dict)
    losses: dict[int, float] = field(default_factory=dict)
    squared_losses: dict[int, float] = field(default_factory=dict)
    durations: dict[int, float] = field(default_factory=dict)
    last: dict[int, int] = field(default_factory=dict)
    chosen: dict[int, int] = field(default_factory=dict)
    delivered: dict[int, int] = field(default_factory=dict)
    connected: dict[int, int] = field(default_factory=dict)

    def begin(self, connected: Sequence[int]) -> None:
        """Begin a round while these workers are connected."""
        self.round += 1
        _count(self.connected, connected)

    def choose(self, workers: Sequence[int]) -> None:
        """Record a choice."""
        _count(self.chosen, workers)

    def arrived(self, worker: int, update: Update, *, seconds: float | None) -> None:
        """Record an update, ``seconds`` after the reply that it builds on, if known."""
        self.samples[worker], self.last[worker] = own(update), self.round
        for name, values in (("loss", self.losses), ("squared_loss", self.squared_losses)):
            if isfinite(value := number(update.note, name, nan)):
                values[worker] = value
        if seconds is not None:
            self.durations[worker] = seconds

    def end(self, participants: Sequence[int]) -> None:
        """End a round that has the updates of these workers."""
        self.participants = list(participants)
        _count(self.delivered, participants)

    def utility(self, worker: int) -> float:
        """Return n √(mean of the squared losses): Oort's statistical utility; 0 if unknown."""
        return self.samples.get(worker, 0) * sqrt(self.squared_losses.get(worker, 0.0))


def _count(counts: dict[int, int], workers: Sequence[int]) -> None:
    for worker in workers:
        counts[worker] = counts.get(worker, 0) + 1


class SelectionConfig(StrictModel, ABC):
    """Base of every selection's options.

    Attributes:
        TAKES_LOSSES: whether workers report the losses of their batches with every update.
    """

    TAKES_LOSSES: ClassVar[bool] = False

    @abstractmethod
    def choose(
        self,
        candidates: Sequence[int],
        count: int,
        *,
        history: History,
        state: SelectionState,
        rng: Generator,
    ) -> Sequence[int]:
        """Return workers for the next round.

        Args:
            candidates: the workers that are connected and wait, ascending; at least one.
            count: number of workers to choose, from 1 to the number of candidates.
            history: what the server has seen; not to be changed.
            state: changed in place; part of checkpoints.
            rng: the server's generator, the only source of randomness.
        """


def highest(values: dict[int, float], count: int, rng: Generator) -> list[int]:
    """Return the workers with the highest values; ties are broken at random."""
    shuffled = rng.permutation(sorted(values)).tolist()
    return sorted(shuffled, key=lambda worker: -values[worker])[:count]


def by_weight(weights: dict[int, float], count: int, rng: Generator) -> list[int]:
    """Draw workers without replacement, with probabilities in proportion to their weights.

    Workers of weight 0 follow, at random, if the others are fewer than ``count``.
    """
    weighed = [worker for worker in sorted(weights) if weights[worker] > 0]
    others = [worker for worker in sorted(weights) if not weights[worker] > 0]
    drawn: list[int] = []
    if weighed and count:
        shares = np.array([weights[worker] for worker in weighed])
        most = min(count, len(weighed))
        drawn = rng.choice(weighed, most, replace=False, p=shares / shares.sum()).tolist()
    left = min(count - len(drawn), len(others))
    return [*drawn, *(rng.choice(others, left, replace=False).tolist() if left else ())]
