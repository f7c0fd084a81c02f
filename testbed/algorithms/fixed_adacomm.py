"""Fixed ADACOMM: local SGD; a barrier after every τ steps of each worker.

J. Wang, G. Joshi, "Adaptive communication strategies to achieve the best error-runtime trade-off in
local-update SGD", MLSys 2019, with its τ fixed; as a baseline in H. Hu, D. Wang, C. Wu,
"Distributed machine learning through heterogeneous edge systems" (ADSP), AAAI 2020.

Symbols, as the ADSP paper writes them:

    W    parameters      the model: the server's, and the copy W_i of it that a worker trains
    g    gradient        the mean gradient of a worker's mini-batch
    U    update          the sum of a worker's steps since its last push
    η'   learning_rate   of the workers
    τ    local_steps     of each worker between two pushes
    M    workers         those that pushed in the round

    worker:   W_i ← pull      τ times: U ← U + η' g, W_i ← W_i - η' g      push U
    server:   wait for the U of every worker; W ← W - Σ U / M; release all

Deviations: a worker that has left is not waited for; what it pushed before is in the round, and M
counts it. τ = 1 is BSP.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from testbed.algorithms.base import AlgorithmConfig, Halves
from testbed.algorithms.parts.accumulation import LocalStepsWorker
from testbed.algorithms.parts.barrier import AveragingServer
from testbed.algorithms.parts.options import LearningRate, Steps


class FixedAdacomm(AlgorithmConfig):
    """Fixed ADACOMM's options.

    Attributes:
        learning_rate: η'.
        local_steps: τ.
    """

    THINKS: ClassVar[bool] = False

    name: Literal["fixed-adacomm"]
    learning_rate: LearningRate = 0.1
    local_steps: Steps = 40

    def halves(self) -> Halves:
        """See base; both are also ADACOMM's."""
        return LocalStepsWorker, AveragingServer
