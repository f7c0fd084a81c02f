"""A barrier: nobody goes on before all members have pushed, or have left."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from testbed.algorithms.base import Applied, C, ServerHalf, Update, expect
from testbed.payloads import Dense


@dataclass
class Barrier:
    """The round under way.

    What a member has pushed counts in this round also if it leaves before the round is complete.
    """

    members: set[int] = field(default_factory=set)
    pushed: dict[int, Update] = field(default_factory=dict)

    @property
    def missing(self) -> set[int]:
        """The members that have not pushed yet."""
        return self.members - self.pushed.keys()

    def take(self) -> Sequence[tuple[int, Update]]:
        """The updates of the round if it is complete, which begins the next; none if it is not.

        They come in the order of the workers, not of their arrival: sums of floats depend on it.
        """
        if self.missing or not self.pushed:
            return ()
        complete, self.pushed = sorted(self.pushed.items()), {}
        return complete


def together(complete: Sequence[tuple[int, Update]], *, version: int) -> Sequence[Applied]:
    """The record of the updates of a round, which are applied at once to the model ``version``.

    Each was computed on that model or misses what came since, but knows of nothing in the round.
    """
    return [
        Applied(worker, version + place, staleness=version - update.version)
        for place, (worker, update) in enumerate(complete)
    ]


class AveragingServer(ServerHalf[C]):
    """W ← W - Σ U / M once per round, with the U that were pushed in it; then all go on."""

    def __post_init__(self) -> None:
        self._barrier = Barrier()

    def join(self, worker: int) -> None:
        """One more to wait for."""
        self._barrier.members.add(worker)

    def leave(self, worker: int, now: float) -> Sequence[Applied]:
        """One less to wait for."""
        self._barrier.members.discard(worker)
        return self._close()

    def push(self, worker: int, update: Update, now: float) -> Sequence[Applied]:
        """Wait for the U of every worker."""
        expect(Dense, update.payload)
        self._barrier.pushed[worker] = update
        return self._close()

    def ready(self, worker: int) -> bool:
        """Once its round is complete."""
        return worker not in self._barrier.pushed

    def awaited(self) -> Collection[int]:
        """Those that have not pushed."""
        return self._barrier.missing

    def _close(self) -> Sequence[Applied]:
        """W ← W - Σ U / M, if the round is complete."""
        complete = self._barrier.take()
        if not complete:
            return ()
        total = sum((expect(Dense, update.payload).values for _, update in complete))
        self.parameters -= total / np.float32(len(complete))
        version, self.version = self.version, self.version + len(complete)
        return together(complete, version=version)
