"""ADACOMM: local SGD; a barrier after every τ steps, where τ shrinks with the loss.

J. Wang, G. Joshi, "Adaptive communication strategies to achieve the best error-runtime trade-off in
local-update SGD", MLSys 2019; as a baseline in H. Hu, D. Wang, C. Wu, "Distributed machine learning
through heterogeneous edge systems" (ADSP), AAAI 2020.

Symbols, as the papers write them:

    W    parameters        the model; W0 is the initial one
    τ    orders            local steps of each worker between two pushes; τ0 is the initial value
    T0   adaptation_period   emulated time after which τ is adapted
    F    measured          the loss of W on the test images of an evaluation; F0 is that of W0

    worker:   as in Fixed ADACOMM, with the τ that the last reply ordered
    server:   as in Fixed ADACOMM; the first round that closes at or after k T0 is held until F is
              known: τ ← ⌈√(F / F0) τ0⌉ if √(F / F0) τ0 < τ, else ⌈τ / 2⌉
              before that, τ0 ← argmax over GRID of (F0 - F) / elapsed, each from W0 to the first
              round that closes after T0 or more; then restart from W0

Deviations: η' is constant, so the papers' factor for its decay is 1. `local_steps` sets τ0, without
a search.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, sqrt
from typing import ClassVar, Literal

from testbed.algorithms.base import AlgorithmConfig, Applied, Halves, Measured, Orders, Reply
from testbed.algorithms.parts.local_sgd import LocalStepsWorker
from testbed.algorithms.parts.options import LearningRate, PositiveDuration, Steps
from testbed.algorithms.parts.rounds import RoundServer
from testbed.payloads import Dense
from testbed.values.units import Duration

GRID = (1, 5, 10, 20, 40, 60, 80, 100)


class Adacomm(AlgorithmConfig):
    """ADACOMM's options.

    Attributes:
        learning_rate: η', the workers' learning rate.
        local_steps: τ0, the initial number of local steps; found by a search by default.
        adaptation_period: T0, the emulated time between two changes of τ.
    """

    OBEYS: ClassVar[frozenset[str]] = frozenset({"batch_size", "local_steps"})
    THINKS: ClassVar[bool] = False

    name: Literal["adacomm"]
    learning_rate: LearningRate = 0.1
    local_steps: Steps | None = None
    adaptation_period: PositiveDuration = Duration(60)

    def halves(self) -> Halves:
        return LocalStepsWorker, AdacommServer


class AdacommServer(RoundServer[Adacomm]):
    """Holds a round after which τ may change until the loss of its model is known."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._initial = self.parameters.copy()  # W0
        self._initial_loss = 0.0  # F0; 0 until it is measured
        self._first = self._local_steps = self.config.local_steps or GRID[0]  # τ0 and τ
        self._rates: list[float] = []  # loss decrease per second, for each τ of GRID tried
        self._searching = self.config.local_steps is None
        self._began: float | None = 0.0  # start of the trial or training; None until a reply
        self._due = float(self.config.adaptation_period)
        self._held: float | None = None  # when the round that waits for its loss closed

    def ready(self, worker: int) -> bool:
        """Return True once the worker's round is complete, and any requested loss is measured."""
        return self._held is None and super().ready(worker)

    def pull(self, worker: int, now: float) -> Reply:
        """W and τ."""
        if self._began is None:
            self._began, self._due = now, now + self.config.adaptation_period
        orders = Orders(local_steps=self._local_steps)
        return Reply(Dense(self.parameters), self.version, orders)

    def wants_loss(self) -> bool:
        """F0 at the start, and F of a held round."""
        return self._held is not None or (self.version == 0 and not self._initial_loss)

    def measured(self, measured: Measured) -> None:
        """F0, or the F of a round."""
        if measured.version == 0:
            self._initial_loss = measured.loss
        elif self._held is not None and measured.version == self.version:
            (self._try_next if self._searching else self._adapt)(measured.loss)
            self._held = None

    def _close(self, now: float) -> Sequence[Applied]:
        """Hold the round that closes if it is the first at or after its due time."""
        applied = super()._close(now)
        if applied and self._initial_loss and now >= self._due:
            self._held = now
        return applied

    def _adapt(self, loss: float) -> None:
        """τ ← ⌈√(F / F0) τ0⌉ if √(F / F0) τ0 < τ, else ⌈τ / 2⌉."""
        assert self._began is not None and self._held is not None
        wanted = sqrt(loss / self._initial_loss) * self._first
        self._local_steps = ceil(wanted if wanted < self._local_steps else self._local_steps / 2)
        period = self.config.adaptation_period
        self._due = self._began + ((self._held - self._began) // period + 1) * period

    def _try_next(self, loss: float) -> None:
        """Return to W0, with the next τ of GRID, or with the best of them as τ0."""
        assert self._began is not None and self._held is not None
        self._rates.append((self._initial_loss - loss) / (self._held - self._began))
        self._searching = len(self._rates) < len(GRID)
        best = self._rates.index(max(self._rates))
        self._first = self._local_steps = GRID[len(self._rates) if self._searching else best]
        self.parameters[:] = self._initial
        self._began = None
