"""A barrier: no worker continues before all members have pushed or left."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from testbed.algorithms.base import Applied, C, ServerHalf, Update, expect
from testbed.payloads import Dense, Payload, Vector


class AveragingServer(ServerHalf[C]):
    """W ← W - Σ U / M once per round, with the U pushed in the round; then all continue.

    A worker's push counts in its round even if the worker leaves before the round is complete.
    """

    def __post_init__(self) -> None:
        self._members: set[int] = set()
        self._pushed: dict[int, Update] = {}

    def join(self, worker: int) -> None:
        """Wait for this worker too."""
        self._members.add(worker)

    def leave(self, worker: int, now: float) -> Sequence[Applied]:
        """Stop waiting for the worker."""
        self._members.discard(worker)
        return self._close()

    def push(self, worker: int, update: Update, now: float) -> Sequence[Applied]:
        """Wait for the U of every worker."""
        self.check(update.payload)
        self._pushed[worker] = update
        return self._close()

    def ready(self, worker: int) -> bool:
        """Return True once the worker's round is complete."""
        return worker not in self._pushed

    def awaited(self) -> Collection[int]:
        """Return the members that have not pushed."""
        return self._members - self._pushed.keys()

    def check(self, payload: Payload) -> None:
        """Refuse a payload that a round cannot use.

        Raises:
            RejectedError: the payload is not dense.
        """
        expect(Dense, payload)

    def mean(self, round_: Sequence[Update]) -> Vector:
        """Σ U / M of a round, in the order of its workers, in float32."""
        total: Vector = sum(expect(Dense, update.payload).values for update in round_)  # type: ignore[assignment]
        return total / np.float32(len(round_))

    def _close(self) -> Sequence[Applied]:
        """W ← W - Σ U / M, if the round is complete.

        The U are summed in the order of the workers, not of arrival: float sums depend on the
        order. Updates of the same round add no staleness to one another.
        """
        if self.awaited() or not self._pushed:
            return ()
        complete, self._pushed = sorted(self._pushed.items()), {}
        self.parameters -= self.mean([update for _, update in complete])
        version, self.version = self.version, self.version + len(complete)
        return [
            Applied(worker, version + place, staleness=version - update.version)
            for place, (worker, update) in enumerate(complete)
        ]
