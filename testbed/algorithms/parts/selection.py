"""Rounds of local training, of all workers, or of some: a random sample trains, the others wait."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeVar

from testbed.algorithms.base import Applied, Reply, Update
from testbed.algorithms.parts.local_training import LocalTraining
from testbed.algorithms.parts.options import Count, Share
from testbed.algorithms.parts.rounds import RoundServer, weighted
from testbed.algorithms.parts.schedule import CONSTANT
from testbed.payloads import Dense, Vector


class FederatedRounds(LocalTraining):
    """Options of algorithms that train whole epochs per round.

    Attributes:
        local_epochs: E, local epochs per round.
        fraction: C, the share of the workers per round.
    """

    local_epochs: Count = 1
    fraction: Share = 1.0


T = TypeVar("T", bound=LocalTraining)
F = TypeVar("F", bound=FederatedRounds)


class TrainingServer(RoundServer[T]):
    """Counts the rounds, for workers whose learning rate follows them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._rounds = 0

    def pull(self, worker: int, now: float) -> Reply:
        """Return the model; with the number of the round if a schedule follows it."""
        schedule = self.config.schedule
        by_rounds = schedule != CONSTANT and schedule.by == "rounds"
        note = {"round": float(self._rounds)} if by_rounds else {}
        return Reply(Dense(self.parameters), self.version, note=note)

    def _close(self, now: float) -> Sequence[Applied]:
        """Count the round, if it is complete."""
        applied = super()._close(now)
        self._rounds += bool(applied)
        return applied


class SelectingServer(TrainingServer[F]):
    """Runs each round with a random sample of the workers; weighs them by their samples."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._chosen: set[int] = set()
        self._choose(range(self.workers))

    def join(self, worker: int) -> None:
        """Add a worker to choose from."""
        super().join(worker)
        if not self._chosen:  # all had left
            self._chosen = {worker}

    def ready(self, worker: int) -> bool:
        """Return True if the worker is in the current round and has not pushed in it."""
        return worker in self._chosen and super().ready(worker)

    def awaited(self) -> Collection[int]:
        """Return the workers of the round that have not pushed."""
        return self._chosen & self._members - self._pushed.keys()

    def mean(self, round_: Sequence[Update]) -> Vector:
        """Σ n_k U_k / Σ n_k."""
        return weighted(round_, self.parameters.size)

    def _close(self, now: float) -> Sequence[Applied]:
        """Choose the workers of the next round."""
        applied = super()._close(now)
        if not self._pushed and (applied or not self.awaited()):
            self._choose(sorted(self._members))
        return applied

    def _choose(self, among: Sequence[int]) -> None:
        """S_t: max(C K, 1) of K."""
        count = min(len(among), max(1, round(self.config.fraction * len(among))))
        self._chosen = set(self.rng.choice(among, count, replace=False).tolist())
