"""Secure aggregation by pairwise masks: the server learns the sum of the updates, and none of them.

K. Bonawitz et al., "Practical secure aggregation for privacy-preserving machine learning", CCS
2017, section 4.0.1: masking with one-time pads, without recovery from dropouts.

    worker u:   y_u = x_u + sum over v > u of PRG(s_uv) - sum over v < u of PRG(s_uv)    mod 2^32
    server:     sum of y_u = sum of x_u    mod 2^32

x_u is the change of the model in fixed point. s_uv comes from the seed that workers share, with the
round; in practice, from a key agreement. A round that lost a worker cannot be unmasked: its updates
are dropped, which the paper avoids by sharing secrets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from testbed.algorithms.base import Applied, Halves, Reply, Update, expect
from testbed.algorithms.parts.local_training import LocalTraining, StepsWorker
from testbed.algorithms.parts.options import Steps
from testbed.algorithms.parts.rounds import RoundServer
from testbed.payloads import Dense, Payload, Vector

Words = NDArray[np.uint32]


@dataclass(frozen=True, eq=False)
class Masked(Payload):
    """A masked vector: uint32, shape (N,); 4 N bytes."""

    values: Words

    NUMBER = 64
    TYPES = ("<u4",)

    def flaw(self, size: int) -> str:
        found = self.values.size
        return "" if found == size else f"{found} masked values for a model of {size}"


class SecureAggregation(LocalTraining):
    """Its options.

    Attributes:
        local_steps: steps of a worker per round.
        fraction_bits: bits after the point of a value.
    """

    PAYLOADS = (Masked,)
    PACKS = False

    local_steps: Steps = 5
    fraction_bits: Annotated[int, Field(ge=1, le=30)] = 20

    def most_noted(self, size: int) -> int:
        return 4 * 10_000  # the numbers of the workers in a round

    def halves(self) -> Halves:
        return Worker, Server


def mask(seed: int, round_: int, pair: Sequence[int], size: int) -> Words:
    """PRG(s_uv): the same for both workers."""
    words = np.random.default_rng([seed, round_, *sorted(pair)])
    return words.integers(2**32, size=size, dtype=np.uint32)


class Worker(StepsWorker):
    """Trains, and masks its change."""

    def receive(self, reply: Reply, now: float) -> Update | None:
        self._members = np.asarray(reply.note["members"]).tolist()
        return super().receive(reply, now)

    def step(self, gradient: Vector, samples: int, now: float) -> Update | None:
        update = super().step(gradient, samples, now)
        if update is None:
            return None
        values = expect(Dense, update.payload).values.astype(np.float64)
        if not np.isfinite(values).all():  # diverged: nothing to protect, and the frame must see it
            return update
        fixed = np.rint(values * 2.0**self.config.fraction_bits).astype(np.int64)
        words = fixed.astype(np.uint32)
        for other in self._members:
            own = mask(self.shared_seed, self.version, (self.index, other), words.size)
            if other > self.index:
                words += own
            elif other < self.index:
                words -= own
        return replace(update, payload=Masked(words))


class Server(RoundServer[SecureAggregation]):
    """Adds what it cannot read; drops rounds that lost a worker."""

    PAYLOAD = Masked

    def __post_init__(self) -> None:
        super().__post_init__()
        self._round: set[int] | None = None  # workers whose masks cancel

    def ready(self, worker: int) -> bool:
        """A worker that joins during a round waits for the next."""
        return super().ready(worker) and (self._round is None or worker in self._round)

    def awaited(self) -> set[int]:
        members = set(super().awaited())
        return members if self._round is None else members & self._round

    def pull(self, worker: int, now: float) -> Reply:
        if self._round is None:
            self._round = set(self._members)
        members = np.array(sorted(self._round), np.int32)
        return replace(super().pull(worker, now), note={"members": members})

    def mean(self, round_: Sequence[Update]) -> Vector:
        words = np.zeros(self.parameters.size, np.uint32)
        for update in round_:
            words += expect(Masked, update.payload).values
        fixed = words.view(np.int32) / 2.0**self.config.fraction_bits
        return (fixed / len(round_)).astype(np.float32)

    def _close(self, now: float) -> Sequence[Applied]:
        whole = self._pushed.keys() == self._round
        if self.awaited() or not self._pushed:
            return ()
        before = self.parameters.copy()
        applied = super()._close(now)
        self._round = None
        if whole:
            return applied
        self.parameters[:] = before  # masks of workers that left remain in the sum
        return [replace(one, step_scale=0.0) for one in applied]
