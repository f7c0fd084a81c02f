"""FedProx: FedAvg whose workers stay near the server's model, and may do less than asked.

T. Li, A. K. Sahu, M. Zaheer, M. Sanjabi, A. Talwalkar, V. Smith, "Federated optimization in
heterogeneous networks", MLSys 2020, algorithm 2.

Symbols, as the paper writes them:

    w    parameters     the model w^t of a round, and worker k's copy of it
    μ    proximal       weight of the proximal term
    E    local_epochs   passes of a worker over its own samples in a round
    η    learning_rate
    γ    inexactness    how far a worker solves its problem; here by its number of epochs

    worker:   E times: for every batch: w_k ← w_k - η (∇F_k(w_k) + μ (w_k - w^t))
              (parts/epochs.py); a straggler trains for 1 to E epochs, drawn at random
    server:   a random sample of the workers; w^{t+1} ← their average (parts/selection.py)

Deviations: the average is weighted by samples, and the workers are drawn uniformly; the paper also
analyses the reverse. Stragglers are drawn for each round, as in the paper's experiments.
"""

from __future__ import annotations

from typing import Literal

from testbed.algorithms.base import Halves
from testbed.algorithms.parts.epochs import PartialEpochsWorker, PartialTraining
from testbed.algorithms.parts.federated import FederatedRounds
from testbed.algorithms.parts.selection import SelectingServer
from testbed.values.fields import NonNegative


class FedProx(FederatedRounds, PartialTraining):
    """FedProx's options.

    Attributes:
        proximal: μ, weight of the proximal term.
    """

    AVERAGES_BUFFERS = True

    name: Literal["fedprox"]
    proximal: NonNegative = 0.01

    def halves(self) -> Halves:
        return PartialEpochsWorker, SelectingServer
