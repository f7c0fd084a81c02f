"""Local SGD: a worker trains its own copy of the model and pushes the sum of its steps."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from testbed.algorithms.base import Update, WorkerHalf
from testbed.payloads import Dense, Vector


class Accumulation:
    """U: the sum of a worker's steps since its last push, on its copy W_i of the model.

    If not ``scaled``, the sum is that of the gradients.
    """

    def __init__(self, parameters: Vector, *, scaled: bool = True) -> None:
        self._parameters, self._scaled = parameters, scaled
        self._sum = np.zeros_like(parameters)
        self.steps = 0
        self.samples = 0

    def add(self, gradient: Vector, samples: int, *, rate: float) -> None:
        """U += η' g; W_i -= η' g, both in float32."""
        step = np.float32(rate) * gradient
        self._sum += step if self._scaled else gradient
        self._parameters -= step
        self.steps += 1
        self.samples += samples

    def take(self, version: int) -> Update:
        """Return the update with U, built on model ``version``, and reset U to 0."""
        update = Update(Dense(self._sum), version, self.samples, self.steps)
        self._sum = np.zeros_like(self._sum)
        self.steps = self.samples = 0
        return update


class LocalStepsWorker(WorkerHalf[Any]):
    """Pushes U after τ steps: the ordered number, or else the config's ``local_steps``."""

    SCALED: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._update = Accumulation(self.parameters, scaled=self.SCALED)

    def rate(self) -> float:
        """η' of the next step; called once per step."""
        rate: float = self.config.learning_rate
        return rate

    def step(self, gradient: Vector, samples: int, now: float) -> Update | None:
        """U ← U + η' g; W_i ← W_i - η' g; after τ steps push U."""
        self._update.add(gradient, samples, rate=self.rate())
        wanted = self.orders.local_steps or self.config.local_steps or 1
        return None if self._update.steps < wanted else self._update.take(self.version)
