"""The learning rate of a worker's steps, which may decay with them (ADSP and its baselines)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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
    """The local learning rate η' of one worker.

    Attributes:
        steps: mini-batches that the worker has trained on.
    """

    options: LocalRateOptions
    steps: int = 0

    def next(self) -> float:
        """Count a mini-batch and return its η': η'_0 decay^⌊steps / decay_steps⌋."""
        options, steps = self.options, self.steps
        self.steps += 1
        if options.decay is None or options.decay_steps is None:
            return options.learning_rate
        return options.learning_rate * options.decay ** (steps // options.decay_steps)


class StepWorker(WorkerHalf[Any]):
    """Pushes after every step."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._rate = LocalRate(self.config)

    def step(self, gradient: Vector, samples: int, now: float) -> Update:
        """Push η' g."""
        return Update(Dense(np.float32(self._rate.next()) * gradient), self.version, samples)
