"""Adagrad: J. Duchi, E. Hazan, Y. Singer, "Adaptive subgradient methods", JMLR 2011."""

from __future__ import annotations

from typing import Literal

import numpy as np

from testbed.algorithms.optimizers.base import OptimizerConfig, OptimizerState, moment
from testbed.payloads import Vector
from testbed.values.fields import PositiveNumber


class Adagrad(OptimizerConfig):
    """Adagrad's options.

    Attributes:
        epsilon: ε, added to the denominator.
    """

    name: Literal["adagrad"] = "adagrad"
    epsilon: PositiveNumber = 1e-10

    def step(
        self, state: OptimizerState, gradient: Vector, parameters: Vector, *, rate: float
    ) -> Vector:
        """d = g + λ w; s ← s + d²; a step of η d / (√s + ε)."""
        direction = self.decayed(gradient, parameters)
        squares = moment(state, "squares", gradient)
        squares += direction * direction
        root: Vector = np.sqrt(squares)
        return np.float32(rate) * direction / (root + np.float32(self.epsilon))
