"""Workers of federated algorithms: local training with any optimizer, then one push.

A schedule changes the learning rate with the progress of the training; a clip limits gradients.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import cos, floor, pi
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator
from typing_extensions import TypeAliasType

from testbed.algorithms.base import AlgorithmConfig, Reply, Update, WorkerHalf
from testbed.algorithms.optimizers import Optimizer, OptimizerState, Sgd
from testbed.algorithms.parts.local_sgd import Accumulation
from testbed.algorithms.parts.options import LearningRate
from testbed.errors import InvalidValue
from testbed.payloads import Vector
from testbed.values.family import Named
from testbed.values.fields import NonNegative, Portion, PositiveNumber, Share, StrictModel


class Clip(StrictModel):
    """A limit of every gradient; exactly one of both.

    Attributes:
        norm: maximum Euclidean norm; longer gradients are scaled.
        value: maximum absolute value of an entry; larger ones are cut.
    """

    norm: PositiveNumber | None = None
    value: PositiveNumber | None = None

    @model_validator(mode="after")
    def _one(self) -> Clip:
        if (self.norm is None) == (self.value is None):
            found = "neither norm nor value" if self.norm is None else "norm and value"
            raise InvalidValue(found, "exactly one, like `clip: {norm: 1.0}`")
        return self

    def limit(self, gradient: Vector) -> Vector:
        """Return the limited gradient; NaN and infinity stay, so that they are noticed."""
        length = float(np.linalg.norm(gradient))
        if not np.isfinite(length):
            return gradient
        if self.value is not None:
            return np.clip(gradient, -self.value, self.value)
        assert self.norm is not None
        return gradient if length <= self.norm else np.float32(self.norm / length) * gradient


class ScheduleConfig(StrictModel, ABC):
    """Base of every schedule's options.

    Attributes:
        by: unit of the progress: rounds or updates in the worker's model, or emulated seconds.
        warm_up: progress over which the learning rate rises linearly from a tenth to its full
            value, before the schedule itself begins.
    """

    by: Literal["rounds", "updates", "seconds"] = "rounds"
    warm_up: NonNegative = 0.0

    def factor(self, progress: float) -> float:
        """Return the factor of the learning rate."""
        if progress < self.warm_up:
            return 0.1 + 0.9 * progress / self.warm_up
        return self.after(progress - self.warm_up)

    @abstractmethod
    def after(self, progress: float) -> float:
        """Return the factor, without the warm-up."""


class Constant(ScheduleConfig):
    """A constant rate, after the warm-up."""

    name: Literal["constant"] = "constant"

    def after(self, progress: float) -> float:
        """1."""
        return 1.0


class StepDecay(ScheduleConfig):
    """A rate that falls in steps.

    Attributes:
        every: progress between two steps.
        gamma: γ, factor of each step.
    """

    name: Literal["step"] = "step"
    every: PositiveNumber
    gamma: Share = 0.1

    def after(self, progress: float) -> float:
        """γ^⌊p / every⌋."""
        return float(self.gamma ** floor(progress / self.every))


class Cosine(ScheduleConfig):
    """A rate that falls along half a cosine wave, and then stays.

    Attributes:
        over: progress at which it is lowest.
        least: the factor from there on.
    """

    name: Literal["cosine"] = "cosine"
    over: PositiveNumber
    least: Portion = 0.0

    def after(self, progress: float) -> float:
        """l + (1 - l) (1 + cos(π p / over)) / 2."""
        wave = (1 + cos(pi * min(1.0, progress / self.over))) / 2
        return self.least + (1 - self.least) * wave


CONSTANT = Constant()

Schedule = TypeAliasType("Schedule", Annotated[Constant | StepDecay | Cosine, Named()])


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
