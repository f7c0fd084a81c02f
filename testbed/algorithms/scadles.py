"""ScaDLES: synchronous SGD over data streams; a batch is one second of a device's stream.

S. Tyagi, M. Swany, "ScaDLES: scalable deep learning over streaming data at the edge", BigData 2022.

Symbols, as the paper writes them:

    S_i    Stream.rate      samples per second of device i's stream, as it measures them
    b_i    own              its own samples, S_i clamped to [b_min, b_max]; r_i = b_i / Σ b_j
    g_i    gradient         mean gradient of its own samples and those shared with it
    ĝ_i    Selection.kept   its Top-k, of the whole gradient; k = max(1, floor(CR N))
    B      base_batch       per device, times n: the batch size for which η is chosen
    α, β   alpha, beta      ceil(α D) devices of a round share floor(β b_i) samples each
    CR, δ  ratio, delta     compression ratio, and the maximum loss by compression
    ρ, s   rho, rho_mean    lost share of |g_i|², and its moving average

    device:   w ← pull        wait until b_i samples have arrived
              share, if it was drawn; append what the others share
              push ĝ_i if s <= δ, else g_i
    server:   g ← Σ r_i g_i; w ← w - η (Σ b_j / B) MOM(g); release all

Deviations: allreduce and exchange of samples are a push and a pull. S_i is rounded; r_i uses b_i,
not Eq. 4a's S_i. The newest ρ has weight 0.1 in s; the paper gives none. The authors' code has
``decide: majority``, by max(1, floor(n/2)) votes, and ``scope: per_tensor``. A device without a
sample for stream_timeout has weight 0; no device waits for one that left. No residual is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Literal

from pydantic import model_validator

from testbed.algorithms.base import Halves, Reply, Samples, Stream, Update, WorkerHalf
from testbed.algorithms.parts.adaptive_compression import CompressionOptions, Selection
from testbed.algorithms.parts.agreement import AgreeingServer, chosen
from testbed.algorithms.parts.momentum import MomentumOptions, MomentumSgd
from testbed.algorithms.parts.options import Count, Portion
from testbed.algorithms.parts.rounds import message, own, weighted
from testbed.errors import InvalidValue
from testbed.payloads import Dense, Vector


class ScaDles(CompressionOptions, MomentumOptions):
    """ScaDLES's options, in addition to those of the compression and of the server's SGD.

    Attributes:
        min_batch: b_min, the minimum batch size.
        max_batch: b_max, the maximum batch size.
        base_batch: B / n, the batch size per device for which η is chosen.
        alpha: α, the fraction of devices that share samples in a round; 0 to share none.
        beta: β, the fraction of its own samples that such a device shares; 0 to share none.
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
            raise InvalidValue(f"min_batch {self.min_batch}", f"at most max_batch {self.max_batch}")
        return self

    @property
    def injects(self) -> bool:
        return self.alpha > 0 and self.beta > 0

    def most_shared(self, batch_size: int) -> int:
        return round(self.beta * max(self.max_batch, batch_size)) if self.injects else 0

    def halves(self) -> Halves:
        return ScaDlesWorker, ScaDlesServer


class ScaDlesWorker(WorkerHalf[ScaDles]):
    """Takes one second of samples, and pushes their gradient or its Top-k."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._selection = Selection(self.config, self.layout.sizes)
        self._shares, self._own = False, 0

    def receive(self, reply: Reply, now: float) -> Update | None:
        """w, or the samples that others share, or whether to compress."""
        if "compress" in reply.note:
            return self._chosen(compress=bool(reply.note["compress"]))
        if isinstance(reply.model, Dense):
            self._shares = "shares" in reply.note
            super().receive(reply, now)
        return None

    def next_batch_size(self, stream: Stream, now: float) -> int:
        """b_i ← clamp(S_i, b_min, b_max)."""
        rate = stream.batch_size if stream.rate is None else round(stream.rate)
        return min(max(rate, self.config.min_batch), self.config.max_batch)

    def on_samples(self, samples: Samples, now: float) -> Update | None:
        """Share floor(β b_i) samples, if this round's draw says so."""
        self._own = len(samples)
        if not len(samples):
            return message(self.version, silent=1.0)
        if not self.config.injects:
            return None
        shared = chosen(samples, self.config.beta, self.rng) if self._shares else samples[:0]
        return message(self.version, shared, shares=float(self._shares))

    def step(self, gradient: Vector, samples: int, now: float) -> Update:
        """Push ĝ_i or g_i, or vote first."""
        note = {"injected": float(samples - self._own)} if self.config.injects else {}
        self._update = Update(Dense(gradient.copy()), self.version, samples, note=note)
        if self.config.ratio is None:
            return self._update
        self._note = note | self._selection.add(gradient)
        compress = self._note["rho_mean"] <= self.config.delta
        if self.config.decide == "majority":
            return message(self.version, vote=float(compress))
        return self._chosen(compress=compress)

    def _chosen(self, *, compress: bool) -> Update:
        payload = self._selection.kept if compress else self._update.payload
        note = self._note | {"compressed": float(compress)}
        return replace(self._update, payload=payload, note=note)


class ScaDlesServer(AgreeingServer):
    """Aggregates rounds; a worker's weight is its number of own samples."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._sgd = MomentumSgd(self.config, self.layout.size)

    def mean(self, round_: Sequence[Update]) -> Vector:
        """Return η (Σ b_j / B) MOM(Σ r_i g_i): MOM is SGD with momentum, B is `base_batch`."""
        samples = sum(own(update) for update in round_)
        scale = samples / (self.config.base_batch * self.workers)
        gradient = weighted(round_, self.layout.size)
        return self._sgd.step(gradient, self.parameters, samples=samples, scale=scale)
