"""What bounds a step of local training: schedules of the learning rate, and limits of gradients.

A schedule is the factor of a learning rate, by the progress of the training.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import cos, floor, pi
from typing import Annotated, Literal

import numpy as np
from pydantic import model_validator
from typing_extensions import TypeAliasType

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
