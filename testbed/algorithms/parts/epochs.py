"""Workers that train for whole epochs, or a part of them, then push."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from testbed.algorithms.base import Stream, Update
from testbed.algorithms.parts.local_training import LocalTraining, LocalTrainingWorker
from testbed.algorithms.parts.options import Portion
from testbed.algorithms.parts.rounds import LEFT_OUT
from testbed.payloads import Vector


class EpochsWorker(LocalTrainingWorker):
    """Trains for ``local_epochs`` passes over its own samples, and pushes the change."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._own = 0  # number of its own samples
        self._losses = np.zeros(2)  # sums over samples of their batch's loss, and of its square
        self._epochs = self.epochs()

    def epochs(self) -> int:
        """Return the number of epochs before the next push."""
        return int(self.config.local_epochs)

    def next_batch_size(self, stream: Stream, now: float) -> int:
        """B samples, or the rest of the epoch; a rest too small for a step is added to B."""
        self._own = stream.own or stream.batch_size
        left = self._own - self._update.samples % self._own
        batch = super().next_batch_size(stream, now)
        return left if left < batch + stream.least else batch

    def step(self, gradient: Vector, samples: int, now: float) -> Update | None:
        """Train; push after the last epoch."""
        self.train(gradient, samples, now)
        if self.config.takes_losses():
            self._losses = self._losses + samples * np.array([self.loss, self.loss**2])
        if self._update.samples < self._epochs * self._own:
            return None
        self._epochs = self.epochs()
        update = self._update.take(self.version)
        if not self.config.takes_losses():
            return update
        (loss, square), self._losses = self._losses / update.samples, np.zeros(2)
        return replace(update, note={"loss": float(loss), "squared_loss": float(square)})


class PartialEpochsWorker(EpochsWorker):
    """Likewise; by chance, at a rate of ``stragglers``, trains for fewer epochs."""

    def epochs(self) -> int:
        """Return ``local_epochs``, or a random number from 1 to it."""
        most, share = super().epochs(), self.config.stragglers
        late = share > 0 and self.rng.random() < share
        return int(self.rng.integers(1, most + 1)) if late else most

    def step(self, gradient: Vector, samples: int, now: float) -> Update | None:
        """Train; note in a push how many samples a full number of epochs would have had more."""
        missing = (super().epochs() - self._epochs) * self._own  # of this push
        update = super().step(gradient, samples, now)
        if update is None or not missing:
            return update
        return replace(update, note={**update.note, LEFT_OUT: float(missing)})


class PartialTraining(LocalTraining):
    """Options of local training that may end early.

    Attributes:
        stragglers: chance that a worker, in a round, trains for a random number of epochs only,
            from 1 to ``local_epochs``.
    """

    stragglers: Portion = 0.0
