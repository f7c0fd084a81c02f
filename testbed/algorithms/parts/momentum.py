"""SGD with momentum and weight decay at the server, and a learning rate that falls by epochs."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
from pydantic import Field, model_validator

from testbed.algorithms.base import AlgorithmConfig
from testbed.algorithms.parts.options import BelowOne, Count, LearningRate, Share
from testbed.errors import Unfit
from testbed.payloads import Vector


class MomentumOptions(AlgorithmConfig):
    """What a scenario may say of the server's SGD.

    Attributes:
        learning_rate: η at first.
        momentum: m.
        weight_decay: λ.
        epoch: samples of all workers together that make an epoch: the size of the training set.
        milestones: epochs after which the learning rate is multiplied by `decay`.
        decay: the factor.
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
            expected = "`epoch` too: how many samples make one, such as 50000"
            raise Unfit("milestones without an epoch", expected)
        if list(self.milestones) != sorted(set(self.milestones)):
            raise Unfit(str(list(self.milestones)), "milestones that increase")
        return self


@dataclass
class MomentumSgd:
    """v ← m v + g + λ w, and then a step of η v; as PyTorch's SGD without dampening.

    Attributes:
        samples: processed so far.
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
        """What is to be taken from the parameters, for a gradient of so many samples.

        ``scale`` multiplies the learning rate of this step alone.
        """
        rate = self.learning_rate() * scale
        self.samples += samples
        self.velocity *= np.float32(self.options.momentum)
        self.velocity += gradient
        if self.options.weight_decay:
            self.velocity += np.float32(self.options.weight_decay) * parameters
        return np.float32(rate) * self.velocity

    def learning_rate(self) -> float:
        """η after the epochs so far: one each time the samples come to as many as an epoch has."""
        if self.options.epoch is None:
            return self.options.learning_rate
        passed = bisect_right(self.options.milestones, self.samples // self.options.epoch)
        return self.options.learning_rate * self.options.decay**passed
