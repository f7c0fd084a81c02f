"""Commits without a barrier: each is applied as it comes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from testbed.algorithms.base import Applied, C, ServerHalf, Update, expect
from testbed.payloads import Dense, Vector


class CommitServer(ServerHalf[C]):
    """W ← W - U / M for every U that is pushed, in the order of their arrival.

    M is how many workers the scenario has, also once some have left.
    """

    def push(self, worker: int, update: Update, now: float) -> Sequence[Applied]:
        """W ← W - U / M."""
        self.parameters -= self.step(expect(Dense, update.payload).values)
        version, self.version = self.version, self.version + 1
        return [Applied(worker, version, staleness=version - update.version)]

    def step(self, update: Vector) -> Vector:
        """What a commit of U takes off the model: U / M."""
        return update / np.float32(self.workers)
