"""Quant-DP: Plump-DP with eight bits per value, in both directions.

The quantised baseline of S. Sun, W. Chen, J. Bian, X. Liu, T.-Y. Liu, "Slim-DP: a multi-agent
system for communication-efficient distributed deep learning", AAMAS 2018, section 4. The
quantisation is that of D. Alistarh et al., "QSGD", NIPS 2017; payloads/qsgd.py has it.

Symbols, as the papers write them:

    w    parameters      the model: the server's, and worker k's copy w_k of it
    δ_k  delta           the sum of a worker's ``local_steps`` updates, momentum included
    K                    number of workers that pushed in the round
    η    learning_rate
    Q    quantise        to levels of a scale A per bucket; its inverse here is Q'
    d    bucket          entries per bucket; the last bucket of each tensor is shorter

    worker k:   w_k ← w_k - Q'(pull)        δ_k ← LocalTrain(w_k, D_k)        push Q(δ_k)
    server:     wait for all; u ← Q(η Σ_k Q'(δ_k) / K);  w ← w - Q'(u);  send u to all

Deviations: the paper does not say what is quantised on the downlink; the time it saves cannot come
from the push alone. Here the server quantises its step, subtracts the same from its own model and
sends that: all copies stay bit-identical. A worker that joins gets the whole model. For momentum,
weight decay and 1/K see parts/data_parallel.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from testbed.algorithms.base import Halves, Update, expect
from testbed.algorithms.parts.data_parallel import (
    DataParallelOptions,
    DataParallelServer,
    SteppedWorker,
)
from testbed.algorithms.parts.options import Count
from testbed.errors import RejectedError
from testbed.payloads import Payload, Quantized, Vector
from testbed.payloads.qsgd import Buckets, Norm, decoded, dequantise, quantise


class QuantDp(DataParallelOptions):
    """Quant-DP's options, in addition to those of Plump-DP.

    Attributes:
        bucket: d, the number of entries that share a scale.
        norm: whether A is the largest magnitude of a bucket, or its Euclidean norm.
    """

    PACKS: ClassVar[bool] = False

    name: Literal["quant-dp"]
    bucket: Count = 512
    norm: Norm = "max"

    def halves(self) -> Halves:
        return QuantWorker, QuantServer


class QuantWorker(SteppedWorker):
    """Pushes δ_k quantised, and applies each step of the server's model."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._buckets = Buckets.of(self.layout.sizes, self.config.bucket)

    def payload(self, delta: Vector) -> Payload:
        """Q(δ_k)."""
        return quantise(delta, self._buckets, rng=self.rng, norm=self.config.norm)

    def apply(self, step: Payload) -> None:
        """w_k ← w_k - Q'(u)."""
        for part, values in decoded(expect(Quantized, step), self._buckets):
            self._model[part] -= values


class QuantServer(DataParallelServer):
    """Sends its step quantised, and applies the same quantised step itself."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._buckets = Buckets.of(self.layout.sizes, self.config.bucket)

    def check_payload(self, payload: Payload) -> None:
        """Refuse a payload without a scale for every bucket."""
        scales, buckets = expect(Quantized, payload).scales.size, self._buckets.count
        if scales != buckets:
            raise RejectedError(f"{scales} scales, expected one for each of {buckets} buckets")

    def add(self, payload: Payload, total: Vector) -> None:
        """Σ_k Q'(δ_k)."""
        for part, values in decoded(expect(Quantized, payload), self._buckets):
            total[part] += values

    def mean(self, round_: Sequence[Update]) -> Vector:
        """Q'(u), the step that every copy of the model applies."""
        step = super().mean(round_)
        self._down = quantise(step, self._buckets, rng=self.rng, norm=self.config.norm)
        return dequantise(self._down, self._buckets, out=step)
