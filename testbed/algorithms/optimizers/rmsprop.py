"""RMSprop: G. Hinton's lecture 6e of "Neural networks for machine learning", 2012."""

from __future__ import annotations

from typing import Literal

import numpy as np

from testbed.algorithms.optimizers.base import OptimizerConfig, OptimizerState, moment
from testbed.payloads import Vector
from testbed.values.fields import BelowOne, PositiveNumber


class RmsProp(OptimizerConfig):
    """RMSprop's options.

    Attributes:
        alpha: α, decay of the mean square.
        momentum: m, momentum.
        epsilon: ε, added to the denominator.
    """

    name: Literal["rmsprop"] = "rmsprop"
    alpha: BelowOne = 0.99
    momentum: BelowOne = 0.0
    epsilon: PositiveNumber = 1e-8

    def step(
        self, state: OptimizerState, gradient: Vector, parameters: Vector, *, rate: float
    ) -> Vector:
        """d = g + λ w; s ← α s + (1 - α) d²; v ← m v + d / (√s + ε); a step of η v."""
        direction = self.decayed(gradient, parameters)
        squares = moment(state, "squares", gradient)
        squares *= np.float32(self.alpha)
        squares += np.float32(1 - self.alpha) * direction * direction
        root: Vector = np.sqrt(squares)
        direction = direction / (root + np.float32(self.epsilon))
        if self.momentum:
            velocity = moment(state, "velocity", gradient)
            velocity *= np.float32(self.momentum)
            velocity += direction
            direction = velocity
        return np.float32(rate) * direction
