"""TAP: totally asynchronous SGD; a step a push, and nobody waits.

K. Hsieh et al., "Gaia: geo-distributed machine learning approaching LAN speeds", NSDI 2017, has the
name; as a baseline in H. Hu, D. Wang, C. Wu, "Distributed machine learning through heterogeneous
edge systems" (ADSP), AAAI 2020.

Symbols, as the ADSP paper writes them:

    W    parameters      the model: the server's, and the copy of it that a worker pulled
    g    gradient        the mean gradient of a worker's mini-batch
    η'   learning_rate   of the workers; may fall with the steps of each
    M    workers         how many the scenario has

    worker:   W ← pull        push η' g
    server:   W ← W - push / M, as it comes

Deviations: none. M stays as it was when a worker leaves.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from testbed.algorithms.base import Halves, Update, WorkerHalf
from testbed.algorithms.parts.commits import CommitServer
from testbed.algorithms.parts.local_rate import LocalRate, LocalRateOptions
from testbed.payloads import Dense, Vector


class Tap(LocalRateOptions):
    """TAP's options: those of η'."""

    THINKS: ClassVar[bool] = False

    name: Literal["tap"]

    def halves(self) -> Halves:
        """See base; the server's applies a push as it comes."""
        return TapWorker, CommitServer


class TapWorker(WorkerHalf[Tap]):
    """Pushes after every step."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._rate = LocalRate(self.config)

    def step(self, gradient: Vector, samples: int, now: float) -> Update:
        """Push η' g."""
        step = np.float32(self._rate.next()) * gradient
        return Update(Dense(step), self.version, samples)
