"""Stochastic gradient descent, with momentum and weight decay."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import model_validator

from testbed.algorithms.optimizers.base import OptimizerConfig, OptimizerState, moment
from testbed.errors import InvalidValue
from testbed.payloads import Vector
from testbed.values.fields import BelowOne


class Sgd(OptimizerConfig):
    """SGD's options.

    Attributes:
        momentum: m, momentum.
        nesterov: whether the step looks ahead by the momentum.
    """

    name: Literal["sgd"] = "sgd"
    momentum: BelowOne = 0.0
    nesterov: bool = False

    @model_validator(mode="after")
    def _nesterov_has_momentum(self) -> Sgd:
        if self.nesterov and not self.momentum:
            raise InvalidValue("nesterov without momentum", "a `momentum` above 0 as well")
        return self

    def step(
        self, state: OptimizerState, gradient: Vector, parameters: Vector, *, rate: float
    ) -> Vector:
        """d = g + λ w; v ← m v + d; a step of η v, or of η (d + m v) with Nesterov's momentum."""
        direction = self.decayed(gradient, parameters)
        if self.momentum:
            velocity = moment(state, "velocity", gradient)
            velocity *= np.float32(self.momentum)
            velocity += direction
            ahead = np.float32(self.momentum) * velocity if self.nesterov else None
            direction = velocity if ahead is None else direction + ahead
        return np.float32(rate) * direction
