"""PowerSGD: gradients as products of two thin matrices, by one power iteration a step.

T. Vogels, S. P. Karimireddy, M. Jaggi, "PowerSGD: practical low-rank gradient compression for
distributed optimization", NeurIPS 2019, algorithms 1 and 2.

Symbols, as the paper writes them:

    x    parameters      the model: the server's, and each worker's copy of it
    g    gradient        a worker's mini-batch gradient
    e    error           a worker's part of g that was not sent yet
    M                    g + e of one tensor, as a matrix n x m
    P, Q                 its factors, n x r and m x r; P̂ has orthonormal columns
    r    rank
    λ    momentum
    γ    learning_rate

The paper's workers reduce P and then Q with one another. Here each reduction is an exchange with
the server, so that a step has two: 4 r n bytes for P up and P̂ down, 4 r m for Q both ways.

    worker:   P ← M Q;  push P            server:  wait for all;  P̂ ← orthonormal(Σ P / W), to all
    worker:   Q ← Mᵀ P̂;  e ← M - P̂ Qᵀ;  push Q
    server:   wait for all;  Q ← Σ Q / W, to all
    both:     Δ ← P̂ Qᵀ;  m ← λ m + Δ;  x ← x - γ (Δ + m);  the next power iteration starts at Q

Deviations: P̂ is that of a QR decomposition, whose columns may have another sign, as Q then has. A
matrix that is smaller than its factors, and every vector, is sent whole, with Q. A worker that
joins gets x, m and Q; one that comes after P̂ was formed has no part in P̂, but in Q.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np

from testbed.algorithms.base import AlgorithmConfig, Halves, Reply, Update, WorkerHalf, expect
from testbed.algorithms.parts.low_rank import LowRank, average, check_size
from testbed.algorithms.parts.options import Count, LearningRate, Momentum
from testbed.algorithms.parts.two_exchanges import TwoExchangesServer
from testbed.payloads import Dense, Factors, Payload, Vector
from testbed.payloads.layout import Layout


class PowerSgd(AlgorithmConfig):
    """PowerSGD's options.

    Attributes:
        learning_rate: γ, the learning rate; without momentum, a step is 2 γ Δ.
        rank: r, the number of columns of each factor.
        momentum: λ, of the aggregated gradient.
    """

    PACKS: ClassVar[bool] = False
    SENDS_MESSAGES: ClassVar[bool] = True

    name: Literal["powersgd"]
    learning_rate: LearningRate = 0.1
    rank: Count = 2
    momentum: Momentum = 0.9

    def most_noted(self, size: int) -> int:
        return 8 * size  # m and Q, for a worker that joins

    def low_rank(self, layout: Layout) -> LowRank:
        return LowRank(layout, self.rank)

    def halves(self) -> Halves:
        return PowerWorker, PowerServer


def accelerated(momentum: Vector, delta: Vector, config: PowerSgd) -> Vector:
    """m ← λ m + Δ, in place; return γ (Δ + m)."""
    momentum *= np.float32(config.momentum)
    momentum += delta
    return np.float32(config.learning_rate) * (delta + momentum)


class PowerWorker(WorkerHalf[PowerSgd]):
    """Sends P and then Q of its gradient and error; repeats the server's step on its copy."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._error, self._momentum = (np.zeros_like(self.parameters) for _ in range(2))
        self._right = np.zeros(self.config.low_rank(self.layout).q_size, np.float32)  # the last Q
        self._left = self.parameters[:0]  # P̂
        self._matrix: Vector | None = None  # M, between its two messages

    def step(self, gradient: Vector, samples: int, now: float) -> Update:
        """P ← M Q; push P."""
        self._matrix, self._samples = gradient + self._error, samples
        left = Factors(self.config.low_rank(self.layout).left_of(self._matrix, self._right))
        return Update(left, self.version, samples=0, steps=0)

    def receive(self, reply: Reply, now: float) -> Update | None:
        """Take P̂ and push Q; or take the step of a round, or the whole model."""
        self.version = reply.version
        if isinstance(reply.model, Dense):
            self.parameters[:], self._matrix = reply.model.values, None
            self._momentum[:] = np.asarray(reply.note["momentum"])
            self._right[:] = np.asarray(reply.note["right"])
            return None
        low, values = self.config.low_rank(self.layout), expect(Factors, reply.model).values.copy()
        if self._matrix is not None:  # Q ← Mᵀ P̂; e ← M - P̂ Qᵀ
            right = low.right_of(self._matrix, values)
            if np.isfinite(right).all():  # one bad batch must not spoil all later ones
                self._error = self._matrix - low.product(values, right)
            self._left, self._matrix = values, None
            return Update(Factors(right), self.version, self._samples)
        delta = low.product(self._left, values)
        self.parameters -= accelerated(self._momentum, delta, self.config)
        self._right = values[: low.q_size]
        return None


class PowerServer(TwoExchangesServer):
    """Averages all P, then all Q."""

    PAYLOAD: ClassVar[type[Payload]] = Factors

    def __post_init__(self) -> None:
        super().__post_init__()
        self._momentum = np.zeros_like(self.parameters)
        size = self.config.low_rank(self.layout).q_size
        self._right = self.rng.standard_normal(size, np.float32)

    def check_message(self, payload: Payload) -> None:
        check_size(payload, self.config.low_rank(self.layout).left_size)

    def check_payload(self, payload: Payload) -> None:
        check_size(payload, self.config.low_rank(self.layout).right_size)

    def answer(self, messages: Sequence[Payload]) -> Payload:
        """P̂ ← orthonormal(Σ P / W)."""
        return Factors(self.config.low_rank(self.layout).orthonormal(average(messages)))

    def mean(self, round_: Sequence[Update]) -> Vector:
        """Q ← Σ Q / W; return γ (Δ + m), which every copy of the model subtracts."""
        low, left = self.config.low_rank(self.layout), expect(Factors, self.answered).values
        right = average([update.payload for update in round_])
        self._down, self._right = Factors(right), right[: low.q_size]
        return accelerated(self._momentum, low.product(left, right), self.config)

    def pull(self, worker: int, now: float) -> Reply:
        """Return P̂, Q or, with m and Q, the whole model."""
        reply = super().pull(worker, now)
        note = {"momentum": self._momentum, "right": self._right}
        return replace(reply, note=note) if isinstance(reply.model, Dense) else reply
