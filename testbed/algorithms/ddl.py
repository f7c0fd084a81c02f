"""DDL: conventional synchronous SGD over data streams, with the same batch on every device.

S. Tyagi, M. Swany, "ScaDLES: scalable deep learning over streaming data at the edge", IEEE Big Data
2022: the baseline of the paper.

Symbols, as the paper writes them:

    w    parameters      the model
    n    workers         those that pushed in the round
    b    batch_size      of the scenario; the paper's is 64 everywhere
    g_i  gradient        mean gradient of device i's batch
    η    learning_rate   falls by epochs
    MOM  momentum        with weight decay, at the server

    device:   w ← pull        wait until b samples are there        push g_i
    server:   wait for the g_i of every device; g ← Σ g_i / n; w ← w - η MOM(g); release all

Deviations: the allreduce is a push and a pull. A device whose stream has brought nothing for the
scenario's stream_timeout is left out of the round, in which it waits; one that has left is not
waited for, and what it pushed before is in the round.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from testbed.algorithms.base import Halves, Samples, Update, WorkerHalf
from testbed.algorithms.parts.momentum import MomentumOptions, MomentumSgd
from testbed.algorithms.parts.rounds import StreamServer, silent
from testbed.payloads import Dense, Vector


class Ddl(MomentumOptions):
    """DDL's options: those of the server's SGD."""

    THINKS: ClassVar[bool] = False
    SENDS_MESSAGES: ClassVar[bool] = True
    TAKES_STREAMS: ClassVar[bool] = True

    name: Literal["ddl"]

    def halves(self) -> Halves:
        return DdlWorker, DdlServer


class DdlWorker(WorkerHalf[Ddl]):
    """Pushes the gradient of every batch."""

    def taken(self, samples: Samples, now: float) -> Update | None:
        """Nothing to say, unless nothing has come."""
        return None if len(samples) else silent(self.version)

    def step(self, gradient: Vector, samples: int, now: float) -> Update:
        """Push g_i."""
        return Update(Dense(gradient.copy()), self.version, samples)


class DdlServer(StreamServer[Ddl]):
    """A round at a time."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._sgd = MomentumSgd(self.config, self.layout.size)

    def mean(self, round_: Sequence[Update]) -> Vector:
        """η MOM(Σ g_i / n)."""
        samples = sum(update.samples for update in round_)
        return self._sgd.step(super().mean(round_), self.parameters, samples=samples)
