"""ScaDLES: synchronous SGD over data streams; a batch is what a device's stream brings in a second.

S. Tyagi, M. Swany, "ScaDLES: scalable deep learning over streaming data at the edge", IEEE Big Data
2022.

Symbols, as the paper writes them:

    S_i    Stream.rate      samples a second of device i's stream, as it measures them
    b_i    Update.samples   its batch: S_i within [b_min, b_max], and the samples shared with it
    g_i    gradient         its mean gradient; ĝ_i its Top-k, max(1, floor(CR size)) of each tensor
    r_i    weighted         its weight b_i / Σ b_j
    B      base_batch       of each device, times n: the batch that η is meant for
    α, β   alpha, beta      ceil(α D) devices of a round share floor(β b_i) samples each
    CR, δ  ratio, delta     of the compression, and the most that it may lose
    ρ, s   LossOfNorm       what is lost of |g_i|², and its moving average

    device:   w ← pull        wait until b_i samples are there
              share, if it is to share; append what the others share
              vote s <= δ; push ĝ_i if max(1, floor(n/2)) or more vote so, else g_i
    server:   g ← Σ r_i g_i; w ← w - η (Σ b_j / B) MOM(g); release all

Deviations: the allreduce is a push and a pull, and so are votes and shared samples. S_i is rounded
to whole samples. A device whose stream has brought nothing for stream_timeout has weight 0; one
that has left is not waited for. What Top-k leaves out is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Literal

from pydantic import model_validator

from testbed.algorithms.base import Halves, Reply, Samples, Stream, Update, WorkerHalf
from testbed.algorithms.parts.adaptive_compression import CompressionOptions, LossOfNorm
from testbed.algorithms.parts.agreement import AgreeingServer, message
from testbed.algorithms.parts.injection import chosen
from testbed.algorithms.parts.momentum import MomentumOptions, MomentumSgd
from testbed.algorithms.parts.options import Count, Portion
from testbed.algorithms.parts.rounds import silent, weighted
from testbed.compress.topk import largest, quotas, sparsify
from testbed.errors import Unfit
from testbed.payloads import Dense, Vector


class ScaDles(CompressionOptions, MomentumOptions):
    """ScaDLES's options, beside those of the compression and of the server's SGD.

    Attributes:
        min_batch: b_min.
        max_batch: b_max.
        base_batch: B / n.
        alpha, beta: α and β; nothing is shared where one of them is 0.
    """

    THINKS: ClassVar[bool] = False
    SENDS_MESSAGES: ClassVar[bool] = True
    TAKES_STREAMS: ClassVar[bool] = True

    name: Literal["scadles"]
    min_batch: Count = 8
    max_batch: Count = 1024
    base_batch: Count = 64
    alpha: Portion = 0.0
    beta: Portion = 0.0

    @model_validator(mode="after")
    def _batches_in_order(self) -> ScaDles:
        if self.min_batch > self.max_batch:
            raise Unfit(f"a min_batch of {self.min_batch}", f"at most max_batch, {self.max_batch}")
        return self

    @property
    def injects(self) -> bool:
        return self.alpha > 0 and self.beta > 0

    def most_shared(self, batch_size: int) -> int:
        return round(self.beta * max(self.max_batch, batch_size)) if self.injects else 0

    def halves(self) -> Halves:
        return ScaDlesWorker, ScaDlesServer


class ScaDlesWorker(WorkerHalf[ScaDles]):
    """Takes a second's samples, and pushes their gradient or some of it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._quotas = quotas(self.layout.sizes, self.config.ratio or 1.0)
        self._loss = LossOfNorm(self.layout.sizes if self.config.norm == "layer-sum" else None)
        self._shares, self._own = False, 0

    def receive(self, reply: Reply, now: float) -> Update | None:
        """w, or the samples that others share, or whether to compress."""
        if "compress" in reply.note:
            payload = self._kept if reply.note["compress"] else self._update.payload
            note = {**self._update.note, "compressed": reply.note["compress"]}
            return replace(self._update, payload=payload, note=note)
        if isinstance(reply.model, Dense):
            self._shares = "shares" in reply.note
            super().receive(reply, now)
        return None

    def demand(self, stream: Stream, now: float) -> int:
        """b_i ← clamp(S_i, b_min, b_max)."""
        rate = stream.batch_size if stream.rate is None else round(stream.rate)
        return min(max(rate, self.config.min_batch), self.config.max_batch)

    def taken(self, samples: Samples, now: float) -> Update | None:
        """Share floor(β b_i) samples, if this round's draw says so."""
        self._own = len(samples)
        if not len(samples):
            return silent(self.version)
        if not self.config.injects:
            return None
        shared = chosen(samples, self.config.beta, self.rng) if self._shares else samples[:0]
        return message(self.version, shared, shares=float(self._shares))

    def step(self, gradient: Vector, samples: int, now: float) -> Update:
        """Push g_i, or vote first."""
        note = {"injected": float(samples - self._own)} if self.config.injects else {}
        update = Update(Dense(gradient.copy()), self.version, samples, note=note)
        if self.config.ratio is None:
            return update
        self._kept = sparsify(gradient, self._quotas, choose=largest)
        s = self._loss.add(gradient, self._kept)
        self._update = replace(update, note=note | {"rho": self._loss.rho, "rho_mean": s})
        return message(self.version, vote=float(s <= self.config.delta))


class ScaDlesServer(AgreeingServer[ScaDles]):
    """A round at a time, each worker's gradient weighted with its samples."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._sgd = MomentumSgd(self.config, self.layout.size)

    def alpha(self) -> float:
        return self.config.alpha if self.config.injects else 0.0

    def mean(self, round_: Sequence[Update]) -> Vector:
        """η (Σ b_j / B) MOM(Σ r_i g_i)."""
        samples = sum(update.samples for update in round_)
        scale = samples / (self.config.base_batch * self.workers)
        gradient = weighted(round_, self.layout.size)
        return self._sgd.step(gradient, self.parameters, samples=samples, scale=scale)
