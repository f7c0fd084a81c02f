"""signSGD with majority vote: one bit per entry, in both directions.

J. Bernstein, J. Zhao, K. Azizzadenesheli, A. Anandkumar, "signSGD with majority vote is
communication efficient and fault tolerant", ICLR 2019, algorithm 1.

Symbols, as the paper writes them:

    x    parameters      the model: the server's, and each worker's copy of it
    g    gradient        a worker's mini-batch gradient
    v    momentum        v ← β v + g; the paper's (1 - β) g has the same sign
    η    learning_rate
    λ    weight_decay

    worker:   v ← β v + g + λ x;  push sign(v);  x ← x - η V
    server:   wait for all;  V ← sign(Σ sign(v_m)), to all;  x ← x - η V

Deviations: a zero, such as a tie, counts as positive, as it takes one bit. The weight decay is part
of the gradient. A worker that joins gets the whole model, and one whose gradient is not finite
pushes that, which ends the training.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np

from testbed.algorithms.base import AlgorithmConfig, Halves, Update, expect
from testbed.algorithms.parts.data_parallel import DataParallelServer, SteppedWorker
from testbed.algorithms.parts.options import Decay, LearningRate, Momentum
from testbed.payloads import Payload, Signs, Vector


class SignSgd(AlgorithmConfig):
    """signSGD's options.

    Attributes:
        learning_rate: η, the change of every entry in a round.
        momentum: β, of each worker.
        weight_decay: λ, of each worker.
    """

    PACKS: ClassVar[bool] = False

    name: Literal["signsgd"]
    learning_rate: LearningRate = 0.001
    momentum: Momentum = 0.9
    weight_decay: Decay = 0.0

    @property
    def local_steps(self) -> int:
        """A worker pushes after every step."""
        return 1

    def halves(self) -> Halves:
        return SignWorker, SignServer


class SignWorker(SteppedWorker):
    """Pushes the signs of its momentum, and applies each vote to its copy of the model."""

    def payload(self, delta: Vector) -> Payload:
        """sign(v)."""
        return Signs.of_values(delta)

    def apply(self, step: Payload) -> None:
        """x ← x - η V."""
        self._model -= np.float32(self.config.learning_rate) * expect(Signs, step).values()


class SignServer(DataParallelServer):
    """Counts the votes of a round."""

    PAYLOAD: ClassVar[type[Payload]] = Signs

    def add(self, payload: Payload, total: Vector) -> None:
        """Σ sign(v_m)."""
        total += expect(Signs, payload).values()

    def mean(self, round_: Sequence[Update]) -> Vector:
        """η V, the step that every copy of the model applies."""
        self._down = vote = Signs.of_values(self.total(round_))
        return np.float32(self.config.learning_rate) * vote.values()
