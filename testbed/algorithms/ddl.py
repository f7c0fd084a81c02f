"""DDL: conventional synchronous SGD over data streams, with the same batch size on every device.

S. Tyagi, M. Swany, "ScaDLES: scalable deep learning over streaming data at the edge", IEEE Big Data
2022, where it is the baseline.

Symbols, as the paper writes them:

    w    parameters      the model
    n    workers         number of workers that pushed in the round
    b    batch_size      set in the scenario; 64 everywhere in the paper
    g_i  gradient        mean gradient of device i's batch
    η    learning_rate   decays at epochs
    MOM  momentum        with weight decay, on the server

    device:   w ← pull        wait until b samples have arrived     push g_i
    server:   wait for the g_i of every device; g ← Σ g_i / n; w ← w - η MOM(g); release all

Deviations: the allreduce is a push and a pull. A device whose stream was silent for the scenario's
stream_timeout skips the round and waits for its end. The server does not wait for a device that
left; its earlier push counts in the round.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from testbed.algorithms.base import Halves, Samples, Update, WorkerHalf
from testbed.algorithms.parts.momentum import MomentumOptions, MomentumSgd
from testbed.algorithms.parts.rounds import RoundServer, message
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

    def on_samples(self, samples: Samples, now: float) -> Update | None:
        """Report a silent stream; send nothing otherwise."""
        return None if len(samples) else message(self.version, silent=1.0)

    def step(self, gradient: Vector, samples: int, now: float) -> Update:
        """Push g_i."""
        return Update(Dense(gradient.copy()), self.version, samples)


class DdlServer(RoundServer[Ddl]):
    """Aggregates round by round."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._sgd = MomentumSgd(self.config, self.layout.size)

    def mean(self, round_: Sequence[Update]) -> Vector:
        """η MOM(Σ g_i / n)."""
        samples = sum(update.samples for update in round_)
        return self._sgd.step(super().mean(round_), self.parameters, samples=samples)
