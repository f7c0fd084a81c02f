"""DiLoCo: rounds of many local AdamW steps, and an outer step with Nesterov's momentum.

A. Douillard, Q. Feng, A. A. Rusu, R. Chhaparia, Y. Donchev, A. Kuncoro, M. Ranzato, A. Szlam, J.
Shen, "DiLoCo: distributed low-communication training of language models", 2023, algorithm 1.

Symbols, as the paper writes them:

    θ    parameters     the model, and worker i's copy of it
    H    local_steps    inner steps per round
    Δ    mean           outer gradient: the average of θ - θ_i over all workers

    worker:   H times: θ_i ← InnerOpt(θ_i, ∇f), AdamW, whose state it keeps; push θ - θ_i
    server:   waits for all; θ ← OuterOpt(θ, Δ), SGD with Nesterov's momentum, 0.7 and 0.9

Deviations: the paper's learning-rate schedule and gradient clipping are the options `schedule` and
`clip`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from testbed.algorithms.base import Halves, Update
from testbed.algorithms.optimizers import AdamW, Optimizer, OptimizerState, Sgd
from testbed.algorithms.parts.federated import TrainingServer
from testbed.algorithms.parts.local_training import LocalTraining, StepsWorker
from testbed.algorithms.parts.options import LearningRate, Momentum, Steps
from testbed.payloads import Vector


class DiLoCo(LocalTraining):
    """DiLoCo's options.

    Attributes:
        local_steps: H, inner steps per round.
        outer_learning_rate: the server's learning rate.
        outer_momentum: the server's momentum.
    """

    WORKERS_EVALUATE: ClassVar[bool] = True

    name: Literal["diloco"]
    learning_rate: LearningRate = 1e-3
    optimizer: Optimizer = Field(default_factory=lambda: AdamW(weight_decay=0.1))
    keep_optimizer: bool = True
    local_steps: Steps = 50
    outer_learning_rate: LearningRate = 0.7
    outer_momentum: Momentum = 0.9

    def halves(self) -> Halves:
        return StepsWorker, DiLoCoServer


class DiLoCoServer(TrainingServer[DiLoCo]):
    """Takes one outer step per round."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._outer: OptimizerState = {}

    def mean(self, round_: Sequence[Update]) -> Vector:
        """The outer step, to be subtracted."""
        momentum = self.config.outer_momentum
        outer = Sgd(momentum=momentum, nesterov=momentum > 0)
        gradient, rate = super().mean(round_), self.config.outer_learning_rate
        return outer.step(self._outer, gradient, self.parameters, rate=rate)
