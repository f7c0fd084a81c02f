"""TERM: workers with a high loss weigh exponentially more, or, against outliers, less.

T. Li, A. Beirami, M. Sanjabi, V. Smith, "Tilted empirical risk minimization", ICLR 2021: the
hierarchical objective of section 2.3 with a tilt over the groups, which are the workers.

Symbols, as the paper writes them:

    θ    parameters     the model, and worker k's copy of it
    t    tilt           above 0 for fairness, below 0 for robustness; 0 is FedAvg
    F_k  loss           of worker k
    n_k  samples        number of a worker's samples
    w_k  weight         of worker k in the gradient of 1/t log Σ n_k e^(t F_k) / Σ n_j

    worker:   E epochs of local training; push θ - θ_k and F_k    (parts/epochs.py)
    server:   w_k = n_k e^(t F_k) / Σ n_j e^(t F_j);  θ ← θ - Σ w_k (θ - θ_k)

Deviations: the paper's gradients are changes after local training here, as in FedAvg. The sum is
that of the round, where the paper's stochastic method smooths it over steps. F_k is the mean loss
of the batches of worker k's round, which the worker knows without a further pass over its samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from testbed.algorithms.base import Halves, Update, expect
from testbed.algorithms.parts.epochs import EpochsWorker
from testbed.algorithms.parts.federated import FederatedRounds
from testbed.algorithms.parts.rounds import own
from testbed.algorithms.parts.selection import SelectingServer
from testbed.errors import RejectedError
from testbed.payloads import Dense, Vector
from testbed.payloads.notes import number
from testbed.values.fields import FiniteNumber


class Term(FederatedRounds):
    """TERM's options.

    Attributes:
        tilt: t; above 0 for fairness, below 0 for robustness against outliers.
    """

    name: Literal["term"]
    tilt: FiniteNumber = 1.0

    def takes_losses(self) -> bool:
        return True

    def halves(self) -> Halves:
        return EpochsWorker, TermServer


class TermServer(SelectingServer[Term]):
    """Weighs the changes of a round by exponentials of the losses."""

    def check(self, update: Update) -> None:
        """Refuse an update without a finite loss, too."""
        super().check(update)
        if not np.isfinite(number(update.note, "loss", np.nan)):
            raise RejectedError(f"a loss of {update.note.get('loss')}, expected a number")

    def mean(self, round_: Sequence[Update]) -> Vector:
        """Σ w_k (θ - θ_k)."""
        losses = np.array([number(update.note, "loss") for update in round_])
        tilted = self.config.tilt * losses
        weights = np.exp(tilted - tilted.max()) * [own(update) for update in round_]
        total = np.zeros_like(self.parameters)
        for weight, update in zip(weights / weights.sum(), round_, strict=True):
            total += np.float32(weight) * expect(Dense, update.payload).values
        return total
