"""FedAsync: the server mixes each worker's model into its own on arrival, stale ones less.

C. Xie, S. Koyejo, I. Gupta, "Asynchronous federated optimization", OPT workshop at NeurIPS 2020,
algorithm 1 and section 5.

Symbols, as the paper writes them:

    x    parameters     the model, and a worker's copy of it
    H    local_steps    a worker's steps between two pushes
    γ    learning_rate
    ρ    proximal       weight of the regularisation towards the model that the worker pulled
    α    mixing         the mixing hyperparameter
    t-τ  staleness      updates that are in the server's model, and not in the worker's
    s    damping        constant: 1; polynomial: (t - τ + 1)^-a;
                        hinge: 1 up to b, then 1 / (a (t - τ - b) + 1)

    worker:   x ← pull    H times: x ← x - γ (∇f(x) + ρ (x - x_τ))    push x
    server:   α_t ← α s(t - τ);  x ← (1 - α_t) x + α_t x_new

Deviations: every worker trains all the time; the paper's scheduler triggers some of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np

from testbed.algorithms.base import Applied, Halves, ServerHalf, Update, expect
from testbed.algorithms.parts.local_training import LocalTraining, LocalTrainingWorker
from testbed.algorithms.parts.options import Share, Steps
from testbed.payloads import Dense, Vector
from testbed.values.fields import NonNegative


class FedAsync(LocalTraining):
    """FedAsync's options.

    Attributes:
        proximal: ρ, weight of the regularisation.
        local_steps: H, local steps per push.
        mixing: α, weight of a worker's model without staleness.
        damping: s, the function of the staleness that multiplies α.
        a: a of the polynomial and the hinge.
        b: b of the hinge.
    """

    ROUNDS: ClassVar[bool] = False

    name: Literal["fedasync"]
    proximal: NonNegative = 0.005
    local_steps: Steps = 10
    mixing: Share = 0.6
    damping: Literal["constant", "polynomial", "hinge"] = "polynomial"
    a: NonNegative = 0.5
    b: NonNegative = 4.0

    def halves(self) -> Halves:
        return FedAsyncWorker, FedAsyncServer

    def scale(self, staleness: int) -> float:
        """s(t - τ)."""
        if self.damping == "constant" or (self.damping == "hinge" and staleness <= self.b):
            return 1.0
        if self.damping == "polynomial":
            return float((staleness + 1) ** -self.a)
        return 1 / (self.a * (staleness - self.b) + 1)


class FedAsyncWorker(LocalTrainingWorker):
    """Trains for H steps, and pushes its model."""

    def step(self, gradient: Vector, samples: int, now: float) -> Update | None:
        """Train; push x after the last step."""
        self.train(gradient, samples, now)
        if self._update.steps < self.config.local_steps:
            return None
        done = self._update.take(self.version)
        return Update(Dense(self.parameters.copy()), done.version, done.samples, done.steps)


class FedAsyncServer(ServerHalf[FedAsync]):
    """Mixes models on arrival; no worker waits."""

    def push(self, worker: int, update: Update, now: float) -> Sequence[Applied]:
        """x ← x + α_t (x_new - x)."""
        model = expect(Dense, update.payload).values
        staleness = self.version - update.version
        scale = self.config.scale(staleness)
        self.parameters += np.float32(self.config.mixing * scale) * (model - self.parameters)
        self.version += 1
        return [
            Applied(
                worker,
                self.version - 1,
                staleness=staleness,
                sigma_mean=float(staleness),
                sigma_max=staleness,
                step_scale=scale,
            )
        ]
