"""What every local optimizer has: options in a scenario, and a step that depends on a state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TypeAlias

import numpy as np

from testbed.payloads import Vector
from testbed.values.fields import NonNegative, StrictModel

OptimizerState: TypeAlias = dict[str, Vector | int]
"""What an optimizer remembers between steps, by name; empty before the first."""


class OptimizerConfig(StrictModel, ABC):
    """Base of every optimizer's options; the algorithm has the learning rate.

    Attributes:
        weight_decay: λ, weight decay.
    """

    weight_decay: NonNegative = 0.0

    @abstractmethod
    def step(
        self, state: OptimizerState, gradient: Vector, parameters: Vector, *, rate: float
    ) -> Vector:
        """Return a new array, to be subtracted from the parameters; update the state.

        Args:
            state: changed in place.
            gradient: float32 (N,), borrowed.
            parameters: float32 (N,), not changed.
            rate: the learning rate of this step.
        """

    def decayed(self, gradient: Vector, parameters: Vector) -> Vector:
        """Return g + λ w; the gradient itself without a weight decay."""
        if not self.weight_decay:
            return gradient
        return gradient + np.float32(self.weight_decay) * parameters


def moment(state: OptimizerState, name: str, like: Vector) -> Vector:
    """Return a vector of the state, which begins at zero."""
    vector = state.setdefault(name, np.zeros_like(like))
    assert isinstance(vector, np.ndarray)
    return vector
