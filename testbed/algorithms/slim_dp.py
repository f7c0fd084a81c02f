"""Slim-DP: sends only the largest and some random coordinates, of gradients and of the model.

S. Sun, W. Chen, J. Bian, X. Liu, T.-Y. Liu, "Slim-DP: a multi-agent system for communication-
efficient distributed deep learning", AAMAS 2018, section 3.

Symbols, as the paper writes them:

    w    parameters      the model: the server's, and worker k's copy w_k of it
    N                    number of parameters of the model
    δ_k  delta           the sum of a worker's ``local_steps`` updates, its solver's momentum and
                         weight decay included
    α    alpha           share of the N coordinates that is communicated
    ε    epsilon         share of the N coordinates that is chosen at random; at most α
    q    core_rounds     rounds between two selections of a core
    S    core            the (α - ε) N largest coordinates, of δ_k or of w
    R    explorer        ε N of the other coordinates, drawn again in every round
    η    learning_rate

    worker k:   w_k ← the whole model, once
                δ_k ← LocalTrain(w_k, D_k)        if t mod q = 0: S_k ← argtop |δ_k|
                R_k ← random       push δ_k on S_k ∪ R_k       w_k on T_C ← pull; rest unchanged
    server:     wait for all; w ← w - η Σ_k δ_k / K, on S_k ∪ R_k
                if t mod q = 0: S ← argtop |w|      R ← random      send w on T_C = S ∪ R to all

Deviations: the paper does not give q; here it is 50. Nor does it say what happens to a worker's own
steps at coordinates that it does not pull: they stay, or are undone with ``discard_local``. Entries
that are not sent are dropped, except what a worker's momentum retains. The paper has no 1/K; see
``aggregate`` in parts/data_parallel.py. With α = 1, ε = 0 it is Plump-DP. payloads/keyed.py,
not this file, sends the keys of a core only once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from numpy.random import Generator
from pydantic import model_validator

from testbed.algorithms.base import Applied, Halves, Reply, expect
from testbed.algorithms.parts.data_parallel import (
    DataParallelOptions,
    DataParallelServer,
    DataParallelWorker,
)
from testbed.algorithms.parts.options import Portion, Share, Steps
from testbed.errors import InvalidValue
from testbed.payloads import Dense, Keyed, Payload, Vector
from testbed.payloads.core_explorer import draw_explorer, select_core, sizes
from testbed.payloads.keyed import signature_of


class SlimDp(DataParallelOptions):
    """Slim-DP's options, in addition to those of Plump-DP.

    Attributes:
        alpha: α, the share of the coordinates that is communicated.
        epsilon: ε, the share that is chosen at random; with 0 only the largest are sent, with α
            only random ones.
        core_rounds: q, rounds between two selections of the core.
        discard_local: whether a worker undoes its own steps at coordinates that it does not pull.
    """

    PACKS: ClassVar[bool] = False
    SENDS_KEYS: ClassVar[bool] = True

    name: Literal["slim-dp"]
    alpha: Share = 0.3
    epsilon: Portion = 0.15
    core_rounds: Steps = 50
    discard_local: bool = False

    @model_validator(mode="after")
    def _explores_a_part(self) -> SlimDp:
        if self.epsilon > self.alpha:
            raise InvalidValue(f"epsilon {self.epsilon}", f"at most alpha, which is {self.alpha}")
        return self

    def halves(self) -> Halves:
        return SlimWorker, SlimServer


class Choice:
    """S ∪ R of a vector: a new S every q rounds, a new R every round."""

    def __init__(self, config: SlimDp, size: int) -> None:
        self._sizes, self._rounds = sizes(size, config.alpha, config.epsilon), config.core_rounds
        self._round = 0

    def of(self, vector: Vector, rng: Generator) -> Keyed:
        """The vector on S ∪ R."""
        if self._round % self._rounds == 0:
            self._core = select_core(vector, self._sizes.core)
            self._signature = signature_of(self._core)
        self._round += 1
        explorer = draw_explorer(self._core, vector.size, self._sizes.explorer, rng=rng)
        values = vector[self._core], vector[explorer]
        return Keyed(self._signature, self._core, values[0], explorer, values[1])


class SlimWorker(DataParallelWorker):
    """Pushes δ_k on S_k ∪ R_k, and merges what it pulls by overwriting."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._choice = Choice(self.config, self.layout.size)
        self._merged = self.parameters.copy() if self.config.discard_local else None

    def payload(self, delta: Vector) -> Payload:
        """δ_k on S_k ∪ R_k."""
        return self._choice.of(delta, self.rng)

    def receive(self, reply: Reply, now: float) -> None:
        """w_k ← the whole model, or w_k on T_C."""
        if isinstance(reply.model, Dense):
            self.parameters[:] = reply.model.values
        else:
            part = expect(Keyed, reply.model)
            if self._merged is not None:
                self.parameters[:] = self._merged
            self.parameters[part.core] = part.core_values
            self.parameters[part.explorer] = part.explorer_values
        if self._merged is not None:
            self._merged[:] = self.parameters
        self.version = reply.version


class SlimServer(DataParallelServer):
    """Sends w on T_C, one set for all workers."""

    PAYLOAD: ClassVar[type[Payload]] = Keyed

    def __post_init__(self) -> None:
        super().__post_init__()
        self._choice = Choice(self.config, self.layout.size)

    def add(self, payload: Payload, total: Vector) -> None:
        """Σ_k δ_k on S_k ∪ R_k."""
        sent = expect(Keyed, payload)
        total[sent.core] += sent.core_values
        total[sent.explorer] += sent.explorer_values

    def _close(self, now: float) -> Sequence[Applied]:
        """Choose T_C, once per round."""
        applied = super()._close(now)
        if applied:
            self._down = self._choice.of(self.parameters, self.rng)
        return applied
