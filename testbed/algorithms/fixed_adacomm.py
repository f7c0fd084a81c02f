"""Fixed ADACOMM: local SGD; a barrier after every τ steps of each worker.

J. Wang, G. Joshi, "Adaptive communication strategies to achieve the best error-runtime trade-off in
local-update SGD", MLSys 2019, with its τ fixed; as a baseline in H. Hu, D. Wang, C. Wu,
"Distributed machine learning through heterogeneous edge systems" (ADSP), AAAI 2020.

Symbols, as the ADSP paper writes them:

    W    parameters      the model: the server's, and worker i's copy W_i of it
    g    gradient        the mean gradient of a worker's mini-batch
    U    update          the sum of a worker's steps since its last push
    η'   learning_rate   the workers' rate; may decay with each worker's steps
    τ    local_steps     each worker's steps between two pushes
    M    workers         number of workers that pushed in the round

    worker:   W_i ← pull      τ times: U ← U + η' g, W_i ← W_i - η' g      push U
    server:   wait for the U of every worker; W ← W - Σ U / M; release all

Deviations: the server does not wait for a worker that left; its earlier push counts in the round
and in M. τ = 1 is BSP.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from testbed.algorithms.base import Halves
from testbed.algorithms.parts.local_sgd import LocalRateOptions, LocalStepsWorker
from testbed.algorithms.parts.options import Steps
from testbed.algorithms.parts.rounds import RoundServer


class FixedAdacomm(LocalRateOptions):
    """Fixed ADACOMM's options, in addition to those of η'.

    Attributes:
        local_steps: τ, local steps between two pushes.
    """

    THINKS: ClassVar[bool] = False

    name: Literal["fixed-adacomm"]
    local_steps: Steps = 40

    def halves(self) -> Halves:
        return LocalStepsWorker, RoundServer
