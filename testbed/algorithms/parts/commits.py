"""Commits without a barrier: each is applied on arrival."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from testbed.algorithms.base import Applied, C, ServerHalf, Update, expect
from testbed.payloads import Dense, Vector


class CommitServer(ServerHalf[C]):
    """W ← W - U / M for every U that is pushed, in order of arrival.

    M is the scenario's number of workers, even after some have left.
    """

    def push(self, worker: int, update: Update, now: float) -> Sequence[Applied]:
        """W ← W - U / M."""
        self.parameters -= self.step(expect(Dense, update.payload).values)
        version, self.version = self.version, self.version + 1
        return [Applied(worker, version, staleness=version - update.version)]

    def step(self, update: Vector) -> Vector:
        """Return what a commit of U subtracts from the model: U / M."""
        return update / np.float32(self.workers)


class MomentumCommitServer(CommitServer[Any]):
    """V ← μ V + (1 - μ) U / M; W ← W - V, if the config has a ``momentum``, μ."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._velocity = np.zeros_like(self.parameters) if self.config.momentum else None  # V

    def step(self, update: Vector) -> Vector:
        """V ← μ V + (1 - μ) U / M."""
        mean = super().step(update)
        if self._velocity is None:
            return mean
        momentum = np.float32(self.config.momentum)
        self._velocity = momentum * self._velocity + (1 - momentum) * mean
        return self._velocity
