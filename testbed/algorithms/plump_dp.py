"""Plump-DP: synchronous data parallelism that exchanges all gradients and the whole model.

The baseline of S. Sun, W. Chen, J. Bian, X. Liu, T.-Y. Liu, "Slim-DP: a multi-agent system for
communication-efficient distributed deep learning", AAMAS 2018, section 2.

Symbols, as the paper writes them:

    w    parameters      the model: the server's, and worker k's copy w_k of it
    N                    number of parameters of the model
    K                    number of workers that pushed in the round
    p    local_steps     mini-batches between two pushes
    δ_k  delta           the sum of a worker's p updates, momentum and weight decay included
    η    learning_rate

    worker k:   w_k ← pull (N values)      δ_k ← LocalTrain(w_k, D_k, p)      push δ_k (N values)
    server:     wait for all; w ← w - η Σ_k δ_k / K

Deviations: the paper has no 1/K; ``aggregate`` selects the mean or the sum of the δ_k
(parts/data_parallel.py, the same for Quant-DP and Slim-DP). The server does not wait for a worker
that left, but it waits for a silent worker unless the scenario's ``ps.dead_after`` removes it.
"""

from __future__ import annotations

from typing import Literal

from testbed.algorithms.base import Halves
from testbed.algorithms.parts.data_parallel import (
    DataParallelOptions,
    DataParallelServer,
    DataParallelWorker,
)


class PlumpDp(DataParallelOptions):
    """Plump-DP's options, which are also options of Quant-DP and Slim-DP."""

    name: Literal["plump-dp"]

    def halves(self) -> Halves:
        return DataParallelWorker, DataParallelServer
