"""TAP: totally asynchronous SGD; one step per push, and no worker waits.

Named in K. Hsieh et al., "Gaia: geo-distributed machine learning approaching LAN speeds", NSDI
2017; as a baseline in H. Hu, D. Wang, C. Wu, "Distributed machine learning through heterogeneous
edge systems" (ADSP), AAAI 2020.

Symbols, as the ADSP paper writes them:

    W    parameters      the model: the server's, and the copy that a worker pulled
    g    gradient        the mean gradient of a worker's mini-batch
    η'   learning_rate   the workers' rate; may decay with each worker's steps
    M    workers         number of workers in the scenario

    worker:   W ← pull        push η' g
    server:   W ← W - push / M, on arrival

Deviations: none. M does not change when a worker leaves.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from testbed.algorithms.base import Halves
from testbed.algorithms.parts.commits import CommitServer
from testbed.algorithms.parts.local_sgd import LocalRateOptions, StepWorker


class Tap(LocalRateOptions):
    """TAP's options: those of η'."""

    THINKS: ClassVar[bool] = False

    name: Literal["tap"]

    def halves(self) -> Halves:
        return StepWorker, CommitServer
