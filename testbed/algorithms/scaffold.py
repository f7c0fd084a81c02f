"""SCAFFOLD: control variates correct the drift of local training on data that differ.

S. P. Karimireddy, S. Kale, M. Mohri, S. J. Reddi, S. U. Stich, A. T. Suresh, "SCAFFOLD: stochastic
controlled averaging for federated learning", ICML 2020, algorithm 1, option II.

Symbols, as the paper writes them:

    x      parameters     the model, and worker i's copy y_i of it
    K      Update.steps   local steps of a worker in a round
    η_l    learning_rate  the workers'
    η_g    server_learning_rate
    c, c_i control        control variates of the server and of worker i; both start at 0
    S, N   round, workers the workers of the round, and their number in the scenario

    worker:   pull x and c; K times: y_i ← y_i - η_l (g(y_i) - c_i + c)
              c_i⁺ ← c_i - c + (x - y_i) / (K η_l);  push x - y_i and c_i⁺ - c_i;  c_i ← c_i⁺
    server:   x ← x - η_g Σ (x - y_i) / |S|;  c ← c + Σ (c_i⁺ - c_i) / N

Deviations: a worker does whole epochs, so K may differ. Both messages have two vectors, the second
in the note, and count as such. A worker that restarts begins with c_i = 0; the server remembers the
c_i of each, to take that of one that left out of c. An update that came late and is dropped changes
c: its worker has the new c_i.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from pydantic import model_validator

from testbed.algorithms.base import Applied, Halves, Reply, Update, expect
from testbed.algorithms.optimizers import Sgd
from testbed.algorithms.parts.epochs import EpochsWorker
from testbed.algorithms.parts.federated import FederatedRounds
from testbed.algorithms.parts.options import LearningRate
from testbed.algorithms.parts.schedule import CONSTANT
from testbed.algorithms.parts.selection import SelectingServer
from testbed.errors import InvalidValue, RejectedError
from testbed.payloads import VALUE_BYTES, Dense, Vector

CONTROL = "control"
"""Name of the control variate in notes: c in replies, c_i⁺ - c_i in updates."""


class Scaffold(FederatedRounds):
    """SCAFFOLD's options.

    Attributes:
        server_learning_rate: η_g, the server's learning rate.
    """

    name: Literal["scaffold"]
    server_learning_rate: LearningRate = 1.0

    @model_validator(mode="after")
    def _plain_sgd(self) -> Scaffold:
        plain = self.optimizer == Sgd() and not self.proximal and self.clip is None
        if not plain or self.schedule != CONSTANT:
            found = "other local training than SGD with a constant learning rate"
            raise InvalidValue(found, "neither `optimizer` nor `proximal`, `clip` and `schedule`")
        return self

    def most_noted(self, size: int) -> int:
        """Return the size of a control variate."""
        return VALUE_BYTES * size

    def halves(self) -> Halves:
        return ScaffoldWorker, ScaffoldServer


class ScaffoldWorker(EpochsWorker):
    """Corrects its gradients."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._control = np.zeros_like(self.parameters)  # c_i
        self._server_control = np.zeros_like(self.parameters)  # c

    def receive(self, reply: Reply, now: float) -> Update | None:
        """Take x and c, which is 0 if it is missing."""
        self._server_control[:] = np.asarray(reply.note.get(CONTROL, 0.0))
        return super().receive(reply, now)

    def step(self, gradient: Vector, samples: int, now: float) -> Update | None:
        """y_i ← y_i - η_l (g - c_i + c); after the last step, renew c_i."""
        corrected = gradient - self._control + self._server_control
        update = super().step(corrected, samples, now)
        if update is None:
            return None
        rate = np.float32(1 / (update.steps * self.config.learning_rate))
        change = rate * expect(Dense, update.payload).values - self._server_control
        self._control += change
        return replace(update, note={**update.note, CONTROL: change})


class ScaffoldServer(SelectingServer[Scaffold]):
    """Averages changes of models and of control variates."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._control = np.zeros_like(self.parameters)  # c
        self._change = np.zeros_like(self.parameters)  # of c, at the end of the round
        self._controls: dict[int, Vector] = {}  # c_i of the workers that have one

    def pull(self, worker: int, now: float) -> Reply:
        """Send x and c."""
        reply = super().pull(worker, now)
        return replace(reply, note={**reply.note, CONTROL: self._control})

    def check(self, update: Update) -> None:
        """Refuse an update without a control variate that fits, too."""
        super().check(update)
        change = update.note.get(CONTROL)
        if not isinstance(change, np.ndarray) or change.shape != self._control.shape:
            raise RejectedError(f"no control variate of {self._control.size} values")

    def push(self, worker: int, update: Update, now: float) -> Sequence[Applied]:
        """Take over c_i⁺, also if the update is late and dropped: the worker has it."""
        self.check(update)
        change = np.asarray(update.note[CONTROL])
        self._controls[worker] = self._controls.get(worker, np.float32(0)) + change
        self._change += np.float32(1 / self.workers) * change
        return super().push(worker, update, now)

    def leave(self, worker: int, now: float) -> Sequence[Applied]:
        """Take c_i out of c: the worker's next process begins with 0."""
        if worker in self._controls:
            self._change -= np.float32(1 / self.workers) * self._controls.pop(worker)
        return super().leave(worker, now)

    def mean(self, round_: Sequence[Update]) -> Vector:
        """η_g Σ (x - y_i) / |S|; update c."""
        total = self.total(round_)
        self._control += self._change
        self._change[:] = 0
        return np.float32(self.config.server_learning_rate / len(round_)) * total
