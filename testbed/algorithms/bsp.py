"""BSP: bulk-synchronous SGD; one step per worker, then a barrier for all.

L. G. Valiant, "A bridging model for parallel computation", CACM 1990; as a baseline in H. Hu,
D. Wang, C. Wu, "Distributed machine learning through heterogeneous edge systems" (ADSP), AAAI 2020.

Symbols, as the ADSP paper writes them:

    W    parameters      the model: the server's, and the copy that a worker pulled
    g    gradient        the mean gradient of a worker's mini-batch
    U    update          the update that a worker pushes
    η'   learning_rate   the workers' rate; may decay with each worker's steps
    M    workers         number of workers that pushed in the round

    worker:   W ← pull        U ← η' g          push U
    server:   wait for the U of every worker; W ← W - Σ U / M; release all

Deviations: the server does not wait for a worker that left; its earlier push counts in the round
and in M.
"""

from __future__ import annotations

from typing import Literal

from testbed.algorithms.base import Halves
from testbed.algorithms.parts.local_sgd import LocalRateOptions, StepWorker
from testbed.algorithms.parts.rounds import RoundServer


class Bsp(LocalRateOptions):
    """BSP's options: those of η'."""

    name: Literal["bsp"]

    def halves(self) -> Halves:
        return StepWorker, RoundServer
