"""FedAvg: in each round, a sample of the workers train whole epochs; the server averages models.

H. B. McMahan, E. Moore, D. Ramage, S. Hampson, B. Agüera y Arcas, "Communication-efficient learning
of deep networks from decentralized data", AISTATS 2017, algorithm 1.

Symbols, as the paper writes them:

    w    parameters        the model w_t of a round, and worker k's copy w^k of it
    C    fraction          share of the workers that take part in a round
    S    chosen            the workers of the round: max(C K, 1) of K at random
    E    local_epochs      passes of a worker over its own samples in a round
    B    batch_size        set in the scenario
    n_k  Update.samples    number of a worker's samples; here E n_k, which gives the same weights
    η    learning_rate

    worker:   E times: for every batch b of its samples: w^k ← w^k - η g(w^k; b)
              (parts/epochs.py)
    server:   S_t at random; wait for all in S_t; w_{t+1} ← Σ n_k w^k / Σ n_k, over S_t
              (parts/selection.py)

Deviations: a worker sends w_t - w^k, an update like that of other algorithms; for B = ∞, set the
scenario's batch_size to all samples. The server does not wait for a worker that left; its earlier
push counts in the round. Workers that are not in S_t wait. Other selections and rules of rounds are
options. If a model cannot train on one sample,
a single sample left at the end of an epoch is added to the batch before it.
"""

from __future__ import annotations

from typing import Literal

from testbed.algorithms.base import Halves
from testbed.algorithms.parts.epochs import EpochsWorker
from testbed.algorithms.parts.federated import FederatedRounds
from testbed.algorithms.parts.selection import SelectingServer


class FedAvg(FederatedRounds):
    """FedAvg's options.

    Attributes:
        learning_rate: η, the workers' learning rate.
        local_epochs: E, local epochs per round.
        fraction: C, the share of the workers per round.
    """

    AVERAGES_BUFFERS = True

    name: Literal["fedavg"]

    def halves(self) -> Halves:
        return EpochsWorker, SelectingServer
