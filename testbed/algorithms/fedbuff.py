"""FedBuff: asynchronous local SGD; the server buffers updates and applies K at a time.

J. Nguyen, K. Malik, H. Zhan, A. Yousefpour, M. Rabbat, M. Malek, D. Huba, "Federated learning with
buffered asynchronous aggregation", AISTATS 2022, algorithms 1 and 2.

Symbols, as the paper writes them:

    w    parameters             the model, and a worker's copy y of it
    Q    local_steps            a worker's steps between two pushes
    Δ    update                 y_0 - y_Q, the sum of a worker's local steps
    K    buffer_size            updates per server step
    η_l  learning_rate          the workers' rate
    η_g  server_learning_rate   the server's rate
    τ    steps since the pull   server steps since the worker's model was sent

    worker:   y ← pull      Q times: y ← y - η_l g(y)      push Δ
    server:   Δ̄ ← Δ̄ + s(τ) Δ; after K updates: w ← w - η_g Δ̄ / K, Δ̄ ← 0    s(τ) = 1 / √(1 + τ)

Deviations: every worker trains all the time, so the paper's concurrency is the number of workers;
each gets the model as soon as it has pushed. `damping: false` keeps s(τ) at 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import ClassVar, Literal

import numpy as np

from testbed.algorithms.base import Applied, Halves, ServerHalf, Update, expect
from testbed.algorithms.parts.local_training import LocalTraining, StepsWorker
from testbed.algorithms.parts.options import Count, LearningRate, Steps
from testbed.payloads import Dense


class FedBuff(LocalTraining):
    """FedBuff's options.

    Attributes:
        learning_rate: η_l, the workers' learning rate.
        server_learning_rate: η_g, the server's learning rate.
        local_steps: Q, local steps per update.
        buffer_size: K, updates that are applied together.
        damping: whether to damp stale updates.
    """

    ROUNDS: ClassVar[bool] = False

    name: Literal["fedbuff"]
    server_learning_rate: LearningRate = 1.0
    local_steps: Steps = 10
    buffer_size: Count = 10
    damping: bool = True

    def halves(self) -> Halves:
        return StepsWorker, FedBuffServer


class FedBuffServer(ServerHalf[FedBuff]):
    """Applies updates K at a time; no worker waits."""

    def __post_init__(self) -> None:
        self._sum = np.zeros_like(self.parameters)  # Δ̄
        self._kept: list[tuple[int, int]] = []  # (worker, version it built on) of each update

    def push(self, worker: int, update: Update, now: float) -> Sequence[Applied]:
        """Δ̄ ← Δ̄ + s(τ) Δ; the K-th empties the buffer."""
        delta = expect(Dense, update.payload).values
        self._sum += np.float32(self._scale(update.version)) * delta
        self._kept.append((worker, update.version))
        return self._step() if len(self._kept) == self.config.buffer_size else ()

    def _step(self) -> Sequence[Applied]:
        """w ← w - η_g Δ̄ / K."""
        rate = self.config.server_learning_rate / self.config.buffer_size
        self.parameters -= np.float32(rate) * self._sum
        applied = [
            Applied(
                worker,
                self.version + place,
                staleness=self.version - pulled,
                sigma_mean=self._steps_since(pulled),
                sigma_max=self._steps_since(pulled),
                step_scale=self._scale(pulled),
            )
            for place, (worker, pulled) in enumerate(self._kept)
        ]
        self.version += len(self._kept)
        self._sum, self._kept = np.zeros_like(self._sum), []
        return applied

    def _steps_since(self, version: int) -> int:
        """τ: each server step applies K updates."""
        return (self.version - version) // self.config.buffer_size if self.config.damping else 0

    def _scale(self, version: int) -> float:
        """s(τ)."""
        return 1 / sqrt(1 + self._steps_since(version))
