"""SGD with momentum and weight decay on the server, and a learning rate that decays at epochs."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
from pydantic import Field, model_validator

from testbed.algorithms.base import AlgorithmConfig
from testbed.algorithms.parts.options import BelowOne, Count, LearningRate, Share
from testbed.errors import InvalidValue
from testbed.payloads import Vector


class MomentumOptions(AlgorithmConfig):
    """A scenario's options for the server's SGD.

    Attributes:
        learning_rate: the initial η.
        momentum: m, the momentum.
        weight_decay: λ, the weight decay.
        epoch: samples per epoch, over all workers: the size of the training set.
        milestones: epochs after which the learning rate is multiplied by `decay`.
        decay: factor of the learning rate at each milestone.
    """

    learning_rate: LearningRate = 0.1
    momentum: BelowOne = 0.9
    weight_decay: BelowOne = 1e-4
    epoch: Count | None = None
    milestones: Annotated[tuple[Count, ...], Field(strict=False)] = ()
    decay: Share = 0.2

    @model_validator(mode="after")
    def _epochs_are_known(self) -> MomentumOptions:
        if self.milestones and self.epoch is None:
            expected = "`epoch` as well: the number of samples per epoch, such as 50000"
            raise InvalidValue("milestones without an epoch", expected)
        if list(self.milestones) != sorted(set(self.milestones)):
            raise InvalidValue(str(list(self.milestones)), "increasing milestones")
        return self


def accelerate(velocity: Vector, gradient: Vector, parameters: Vector, options: Any) -> None:
    """v ← m v + g + λ w, in place; ``options`` has m, ``momentum``, and λ, ``weight_decay``."""
    velocity *= np.float32(options.momentum)
    velocity += gradient
    if options.weight_decay:
        velocity += np.float32(options.weight_decay) * parameters


@dataclass
class MomentumSgd:
    """v ← m v + g + λ w, then a step of η v; like PyTorch's SGD without dampening.

    Attributes:
        samples: number of samples processed so far.
        velocity: v, float32 (N,); not rescaled when η changes.
    """

    options: MomentumOptions
    size: int
    samples: int = 0
    velocity: Vector = field(init=False)

    def __post_init__(self) -> None:
        self.velocity = np.zeros(self.size, np.float32)

    def step(
        self, gradient: Vector, parameters: Vector, *, samples: int, scale: float = 1.0
    ) -> Vector:
        """Return the step to subtract from the parameters, for a gradient over ``samples`` samples.

        ``scale`` multiplies the learning rate of this step only.
        """
        rate = self.learning_rate() * scale
        self.samples += samples
        accelerate(self.velocity, gradient, parameters, self.options)
        return np.float32(rate) * self.velocity

    def learning_rate(self) -> float:
        """Return η after the completed epochs; an epoch is complete after ``epoch`` samples."""
        if self.options.epoch is None:
            return self.options.learning_rate
        passed = bisect_right(self.options.milestones, self.samples // self.options.epoch)
        return self.options.learning_rate * self.options.decay**passed
