"""Workers of federated algorithms: local training with any optimizer, then one push."""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from pydantic import Field, model_validator

from testbed.algorithms.base import AlgorithmConfig, Reply, Update, WorkerHalf
from testbed.algorithms.optimizers import Optimizer, OptimizerState, Sgd
from testbed.algorithms.parts.local_sgd import Accumulation
from testbed.algorithms.parts.options import LearningRate
from testbed.algorithms.parts.schedule import CONSTANT, Clip, Schedule
from testbed.errors import InvalidValue
from testbed.payloads import Vector
from testbed.values.fields import NonNegative


class LocalTraining(AlgorithmConfig):
    """Options of local training.

    Attributes:
        learning_rate: the workers' learning rate.
        optimizer: what a worker makes of a gradient.
        keep_optimizer: whether a worker keeps its optimizer's state when it pulls a model; by
            default, the state starts from zero.
        proximal: μ; adds μ (w - w_0) to every gradient, w_0 being the model from the server.
        clip: limit of every gradient; None for no limit.
        schedule: factor of the learning rate.
    """

    ROUNDS: ClassVar[bool] = True
    """Whether the server counts rounds, which a schedule may follow."""

    learning_rate: LearningRate = 0.1
    optimizer: Optimizer = Field(default_factory=Sgd)
    keep_optimizer: bool = False
    proximal: NonNegative = 0.0
    clip: Clip | None = None
    schedule: Schedule = CONSTANT

    @model_validator(mode="after")
    def _schedule_by_what_exists(self) -> LocalTraining:
        if self.schedule != CONSTANT and self.schedule.by == "rounds" and not self.ROUNDS:
            found = "a schedule by rounds, which this algorithm does not have"
            raise InvalidValue(found, "`by: updates` or `by: seconds`")
        return self


class LocalTrainingWorker(WorkerHalf[Any], ABC):
    """Trains its copy of the model; a subclass decides when to push the change."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._update = Accumulation(self.parameters)
        self._optimizer: OptimizerState = {}
        self._start = np.zeros(self.layout.size if self.config.proximal else 0, np.float32)
        self._round = 0

    def receive(self, reply: Reply, now: float) -> Update | None:
        """Continue from the server's model."""
        super().receive(reply, now)
        if not self.config.keep_optimizer:
            self._optimizer.clear()
        if self.config.proximal:
            self._start[:] = self.parameters
        self._round = int(reply.note.get("round", 0))
        return None

    def train(self, gradient: Vector, samples: int, now: float) -> None:
        """Take one step with a gradient over ``samples`` samples."""
        config = self.config
        rate = config.learning_rate * self._factor(now)
        changes = [(part, gradient[part].copy()) for part in self.layout.untrained_slices]
        with np.errstate(over="ignore", invalid="ignore"):  # the server ends diverged training
            if config.proximal:
                gradient = gradient + np.float32(config.proximal) * (self.parameters - self._start)
            if changes:
                gradient = _without(gradient, self.layout.untrained_slices)
            if config.clip is not None:
                gradient = config.clip.limit(gradient)
            step = config.optimizer.step(self._optimizer, gradient, self.parameters, rate=rate)
            for part, change in changes:
                step[part] = change
            self._update.subtract(step, samples)

    def _factor(self, now: float) -> float:
        schedule = self.config.schedule
        progress = {"rounds": self._round, "updates": self.version, "seconds": now}
        return float(schedule.factor(progress[schedule.by]))


def _without(gradient: Vector, parts: Sequence[slice]) -> Vector:
    """Return a copy with zeros in some parts."""
    trained = gradient.copy()
    for part in parts:
        trained[part] = 0.0
    return trained


class StepsWorker(LocalTrainingWorker):
    """Trains for ``local_steps`` mini-batches, and pushes the change."""

    def step(self, gradient: Vector, samples: int, now: float) -> Update | None:
        """Train; push after the last step."""
        self.train(gradient, samples, now)
        if self._update.steps < self.config.local_steps:
            return None
        return self._update.take(self.version)
