"""q-FedAvg: workers with a high loss weigh more, for a fairer distribution of the accuracy.

T. Li, M. Sanjabi, A. Beirami, V. Smith, "Fair resource allocation in federated learning", ICLR
2020, algorithm 2.

Symbols, as the paper writes them:

    w    parameters     the model, and worker k's copy of it
    q    q              the larger, the fairer; 0 is FedAvg without weights
    L    1 / η          with η the workers' learning rate
    F_k  loss           of worker k
    Δw_k direction      L (w - w_k)

    worker:   E epochs of local training; push w - w_k and F_k    (parts/epochs.py)
    server:   Δ_k = F_k^q Δw_k;  h_k = q F_k^(q-1) ‖Δw_k‖² + L F_k^q
              w ← w - Σ Δ_k / Σ h_k

Deviations: F_k is the mean loss of the batches of worker k's round, which the worker knows without
a further pass over its samples; the paper's is that of w. Losses below 1e-10 count as that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from testbed.algorithms.base import Halves, Update, expect
from testbed.algorithms.parts.epochs import EpochsWorker
from testbed.algorithms.parts.federated import FederatedRounds
from testbed.algorithms.parts.selection import SelectingServer
from testbed.errors import RejectedError
from testbed.payloads import Dense, Vector
from testbed.payloads.notes import number
from testbed.values.fields import NonNegative

LEAST = 1e-10
"""The smallest loss: a power of 0 is infinite if q is below 1."""


class QFedAvg(FederatedRounds):
    """q-FedAvg's options.

    Attributes:
        q: fairness; 0 for none.
    """

    name: Literal["qfedavg"]
    q: NonNegative = 1.0

    def takes_losses(self) -> bool:
        return True

    def halves(self) -> Halves:
        return EpochsWorker, QFedAvgServer


class QFedAvgServer(SelectingServer[QFedAvg]):
    """Weighs the changes of a round by powers of the losses."""

    def check(self, update: Update) -> None:
        """Refuse an update without a loss, too."""
        super().check(update)
        if not number(update.note, "loss", -1.0) >= 0:
            raise RejectedError(f"a loss of {update.note.get('loss')}, expected 0 or more")

    def mean(self, round_: Sequence[Update]) -> Vector:
        """Σ Δ_k / Σ h_k."""
        q, rate = self.config.q, self.config.learning_rate
        total, weight = np.zeros_like(self.parameters), 0.0
        for update in round_:
            direction = expect(Dense, update.payload).values / np.float32(rate)
            loss = max(LEAST, number(update.note, "loss"))
            square = float(np.square(direction, dtype=np.float64).sum())
            total += np.float32(loss**q) * direction
            weight += q * loss ** (q - 1) * square + loss**q / rate
        return total / np.float32(weight)
