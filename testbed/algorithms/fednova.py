"""FedNova: averages local changes per step, so that no worker counts more because it does more.

J. Wang, Q. Liu, H. Liang, G. Joshi, H. V. Poor, "Tackling the objective inconsistency problem in
heterogeneous federated optimization", NeurIPS 2020, equation 6.

Symbols, as the paper writes them:

    x    parameters      the model, and worker i's copy of it
    η    learning_rate
    τ_i  Update.steps    local steps of worker i in a round
    p_i  share           of worker i in the samples of the round, however many of its epochs it did
    d_i  direction       U_i / τ_i, with U_i the sum of its local steps (which include η)

    worker:   E epochs of SGD, a straggler fewer; push U_i    (parts/epochs.py)
    server:   x ← x - τ_eff Σ p_i d_i    with τ_eff = Σ p_i τ_i

Deviations: for plain SGD only, where the norm of the accumulation vector a_i is τ_i; the paper also
has momentum and proximal terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import model_validator

from testbed.algorithms.base import Halves, Update, expect
from testbed.algorithms.optimizers import Sgd
from testbed.algorithms.parts.epochs import PartialEpochsWorker, PartialTraining
from testbed.algorithms.parts.federated import FederatedRounds
from testbed.algorithms.parts.rounds import own
from testbed.algorithms.parts.selection import SelectingServer
from testbed.errors import InvalidValue
from testbed.payloads import Dense, Vector


class FedNova(FederatedRounds, PartialTraining):
    """FedNova's options."""

    name: Literal["fednova"]

    @model_validator(mode="after")
    def _plain_sgd(self) -> FedNova:
        plain = isinstance(self.optimizer, Sgd) and not self.optimizer.momentum
        if not plain or self.proximal:
            found = "a proximal term" if plain else f"{self.optimizer.name} with a state"
            raise InvalidValue(found, "sgd without momentum and proximal term")
        return self

    def halves(self) -> Halves:
        return PartialEpochsWorker, FedNovaServer


class FedNovaServer(SelectingServer[FedNova]):
    """Averages directions, and takes the average number of steps along them."""

    def mean(self, round_: Sequence[Update]) -> Vector:
        """τ_eff Σ p_i d_i."""
        total = sum(own(update) for update in round_)
        shares = [own(update) / total for update in round_]
        steps = sum(p * update.steps for p, update in zip(shares, round_, strict=True))
        mean = np.zeros_like(self.parameters)
        for p, update in zip(shares, round_, strict=True):
            mean += np.float32(p / update.steps) * expect(Dense, update.payload).values
        return np.float32(steps) * mean
