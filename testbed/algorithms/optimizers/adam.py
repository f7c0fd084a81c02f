"""Adam, and AdamW, whose weight decay does not pass through the moments.

D. P. Kingma, J. Ba, "Adam: a method for stochastic optimization", ICLR 2015; I. Loshchilov, F.
Hutter, "Decoupled weight decay regularization", ICLR 2019.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from testbed.algorithms.optimizers.base import OptimizerConfig, OptimizerState, moment
from testbed.payloads import Vector
from testbed.values.fields import BelowOne, NonNegative, PositiveNumber


class _Adam(OptimizerConfig):
    """Options of both.

    Attributes:
        beta1: decay of the first moment.
        beta2: decay of the second moment.
        epsilon: ε, added to the denominator.
    """

    beta1: BelowOne = 0.9
    beta2: BelowOne = 0.999
    epsilon: PositiveNumber = 1e-8

    def _adapted(self, state: OptimizerState, gradient: Vector, rate: float) -> Vector:
        """η m̂ / (√v̂ + ε), with both moments corrected for their start at zero."""
        first, second = moment(state, "first", gradient), moment(state, "second", gradient)
        steps = int(state.get("steps", 0)) + 1
        state["steps"] = steps
        first += np.float32(1 - self.beta1) * (gradient - first)
        second *= np.float32(self.beta2)
        second += np.float32(1 - self.beta2) * gradient * gradient
        root: Vector = np.sqrt(second)
        root /= np.float32((1 - self.beta2**steps) ** 0.5)
        root += np.float32(self.epsilon)
        return np.float32(rate / (1 - self.beta1**steps)) * first / root


class Adam(_Adam):
    """Adam's options."""

    name: Literal["adam"] = "adam"

    def step(
        self, state: OptimizerState, gradient: Vector, parameters: Vector, *, rate: float
    ) -> Vector:
        """Adam's step, for g + λ w."""
        return self._adapted(state, self.decayed(gradient, parameters), rate)


class AdamW(_Adam):
    """AdamW's options.

    Attributes:
        weight_decay: λ, weight decay, multiplied by the learning rate only.
    """

    name: Literal["adamw"] = "adamw"
    weight_decay: NonNegative = 0.01

    def step(
        self, state: OptimizerState, gradient: Vector, parameters: Vector, *, rate: float
    ) -> Vector:
        """Adam's step for g, and η λ w."""
        decay = np.float32(rate * self.weight_decay) * parameters
        return decay + self._adapted(state, gradient, rate)
