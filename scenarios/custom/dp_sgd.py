"""Federated averaging with DP-SGD at the workers: updates reveal little about any sample.

M. Abadi et al., "Deep learning with differential privacy", CCS 2016, algorithm 1.

    a lot L_t has each sample of the worker with probability q
    g(x) ← g(x) / max(1, ‖g(x)‖ / C)                  for each x of the lot
    g̃ ← (Σ g(x) + N(0, σ² C² I)) / (q n);  w ← w - η g̃

A step has one sample, as a gradient of several cannot be clipped for each: `speed` is the time per
sample. `python dp_epsilon.py RUN` says what ε was spent, for each worker's samples.

Deviations: the size of a lot is that of Poisson sampling, at least 1, but its samples come from
shuffled epochs, as in most implementations. The noise comes from the run's seed, so that the run
can be repeated; a real device must draw it from a secure generator.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from testbed.algorithms.base import Halves, Stream, Update
from testbed.algorithms.parts.federated import TrainingServer
from testbed.algorithms.parts.local_training import LocalTraining, StepsWorker
from testbed.algorithms.parts.options import Share, Steps
from testbed.payloads import Vector
from testbed.values.fields import NonNegative, PositiveNumber


class DpSgd(LocalTraining):
    """Its options.

    Attributes:
        local_steps: lots per push.
        sampling: q.
        norm: C, the limit of a sample's gradient.
        noise: σ, the noise multiplier.
    """

    ROUNDS: ClassVar[bool] = True

    learning_rate: PositiveNumber = 0.2
    local_steps: Steps = 2
    sampling: Share = 0.1
    norm: PositiveNumber = 1.0
    noise: NonNegative = 1.0

    def halves(self) -> Halves:
        return Worker, TrainingServer


class Worker(StepsWorker):
    """Adds up the clipped gradients of a lot, then steps with noise."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._sum = np.zeros_like(self.parameters)
        self._taken = self._lot = 0
        self._own = 1

    def next_batch_size(self, stream: Stream, now: float) -> int:
        """One sample; the first of a lot draws its size."""
        self._own = stream.own or stream.batch_size
        if not self._lot:
            self._lot = max(1, int(self.rng.binomial(self._own, self.config.sampling)))
        return 1

    def step(self, gradient: Vector, samples: int, now: float) -> Update | None:
        """Clip; the last of a lot adds the noise, and takes the step."""
        options = self.config
        with np.errstate(over="ignore", invalid="ignore"):  # the server ends diverged training
            norm = np.float32(np.linalg.norm(gradient))
            self._sum += gradient / max(np.float32(1), norm / np.float32(options.norm))
        self._taken += samples
        if self._taken < self._lot:
            return None
        noise = self.rng.normal(0.0, options.noise * options.norm, gradient.size)
        expected = options.sampling * self._own
        private = ((self._sum + noise) / expected).astype(np.float32)
        taken, self._taken, self._lot = self._taken, 0, 0
        self._sum[:] = 0
        return super().step(private, taken, now)
