"""Local SGD: a worker steps on its own copy of the model and pushes the sum of its steps."""

from __future__ import annotations

import numpy as np

from testbed.algorithms.base import Update
from testbed.payloads import Dense, Vector


class Accumulation:
    """U: the steps that a worker has made since its last push, on its copy W_i of the model."""

    def __init__(self, parameters: Vector) -> None:
        self._parameters = parameters
        self._sum = np.zeros_like(parameters)
        self.steps = 0
        self.samples = 0

    def add(self, gradient: Vector, samples: int, *, rate: float) -> None:
        """U += η' g; W_i -= η' g, both in float32."""
        step = np.float32(rate) * gradient
        self._sum += step
        self._parameters -= step
        self.steps += 1
        self.samples += samples

    def take(self, version: int) -> Update:
        """The update with U, built on the model ``version``; U is 0 from then on."""
        update = Update(Dense(self._sum), version, self.samples, self.steps)
        self._sum = np.zeros_like(self._sum)
        self.steps = self.samples = 0
        return update
