"""Workers that push their steps, one or the sum of several; their rate may decay with the steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from pydantic import model_validator

from testbed.algorithms.base import AlgorithmConfig, Update, WorkerHalf
from testbed.algorithms.parts.options import LearningRate, Share, Steps
from testbed.errors import InvalidValue
from testbed.payloads import Dense, Vector


class LocalRateOptions(AlgorithmConfig):
    """A scenario's options for η'.

    Attributes:
        learning_rate: the initial η'.
        decay: factor that multiplies η' after every `decay_steps`; None for a constant η'.
        decay_steps: mini-batches of a worker between two decays.
    """

    learning_rate: LearningRate = 0.1
    decay: Share | None = None
    decay_steps: Steps | None = None

    @model_validator(mode="after")
    def _both_or_neither(self) -> LocalRateOptions:
        if (self.decay is None) != (self.decay_steps is None):
            found, lacking = ("decay", "decay_steps")[:: 1 if self.decay else -1]
            raise InvalidValue(
                f"{found} without {lacking}",
                "both `decay`, a factor, and `decay_steps`, a number of mini-batches, or neither",
            )
        return self


@dataclass
class LocalRate:
    """The local learning rate η' of one worker; constant for options without a ``decay``.

    Attributes:
        steps: mini-batches that the worker has trained on.
    """

    options: Any
    steps: int = 0

    def next(self) -> float:
        """Count a mini-batch and return its η': η'_0 decay^⌊steps / decay_steps⌋."""
        rate: float = self.options.learning_rate
        if getattr(self.options, "decay", None) is not None:
            rate *= self.options.decay ** (self.steps // self.options.decay_steps)
        self.steps += 1
        return rate


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
        self.subtract(step, samples, counted=step if self._scaled else gradient)

    def subtract(self, step: Vector, samples: int, *, counted: Vector | None = None) -> None:
        """W_i -= step; U += the same, or ``counted``."""
        self._sum += step if counted is None else counted
        self._parameters -= step
        self.steps += 1
        self.samples += samples

    def take(self, version: int) -> Update:
        """Return the update with U, built on model ``version``, and reset U to 0."""
        update = Update(Dense(self._sum), version, self.samples, self.steps)
        self._sum = np.zeros_like(self._sum)
        self.steps = self.samples = 0
        return update


class StepWorker(WorkerHalf[Any]):
    """Pushes after every step."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._rate = LocalRate(self.config)

    def step(self, gradient: Vector, samples: int, now: float) -> Update:
        """Push η' g."""
        return Update(Dense(np.float32(self._rate.next()) * gradient), self.version, samples)


class LocalStepsWorker(WorkerHalf[Any]):
    """Pushes U after τ steps: the ordered number, or else the config's ``local_steps``."""

    SCALED: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._rate = LocalRate(self.config)
        self._update = Accumulation(self.parameters, scaled=self.SCALED)

    def step(self, gradient: Vector, samples: int, now: float) -> Update | None:
        """U ← U + η' g; W_i ← W_i - η' g; after τ steps push U."""
        self._update.add(gradient, samples, rate=self._rate.next())
        wanted = self.orders.local_steps or self.config.local_steps or 1
        return None if self._update.steps < wanted else self._update.take(self.version)
