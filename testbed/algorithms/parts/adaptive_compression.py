"""Adaptive compression: Top-k of a gradient, while it loses little of the gradient."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import sqrt
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from testbed.algorithms.base import AlgorithmConfig
from testbed.payloads import Sparse, Vector
from testbed.payloads.topk import Scope, largest, parts_of, quotas, sparsify
from testbed.values.fields import NonNegative, Share

EWMA_WEIGHT = 0.1


class CompressionOptions(AlgorithmConfig):
    """A scenario's options for adaptive compression.

    Attributes:
        ratio: CR, the compression ratio; without it nothing is compressed.
        delta: δ, the maximum loss by compression.
        scope: Top-k of the whole gradient, as in the paper, or of each tensor separately, as in
            the authors' code.
        decide: whether each device decides on compression, as in the paper, or the majority of
            the round's devices decides for all, as in the authors' code.
        norm: the norm that measures the loss: `squared`, the squared norm of the gradient, as in
            the paper; or `layer-sum`, the sum of its tensors' norms, as in the authors' code.
    """

    ratio: Share | None = None
    delta: NonNegative = 0.3
    scope: Scope = "global"
    decide: Literal["device", "majority"] = "device"
    norm: Literal["squared", "layer-sum"] = "squared"


@dataclass
class LossOfNorm:
    """s, a moving average of ρ = | |g|² - |ĝ|² | / |g|²: the share of a gradient that Top-k loses.

    Attributes:
        sizes: sizes of the tensors, to use the sum of their norms; None to use |g|².
        weight: weight of the newest ρ in s; s starts as the first ρ.
        rho: the newest ρ.
        average: s; None before the first gradient.
    """

    sizes: Sequence[int] | None = None
    weight: float = EWMA_WEIGHT
    rho: float = 0.0
    average: float | None = None

    def add(self, gradient: Vector, kept: Sparse) -> float:
        """Add a gradient and its Top-k; return s. A zero gradient has ρ = 0."""
        whole, part = self._norms(gradient, kept)
        self.rho = abs(whole - part) / whole if whole else 0.0
        before = self.rho if self.average is None else self.average
        self.average = (1 - self.weight) * before + self.weight * self.rho
        return self.average

    def _norms(self, gradient: Vector, kept: Sparse) -> tuple[float, float]:
        if self.sizes is None:
            return _squared(gradient), _squared(kept.values)
        ends = np.cumsum(self.sizes)
        return _sum(gradient, ends), _sum(kept.values, np.searchsorted(kept.indices, ends))


class Selection:
    """A worker's Top-k selection, and its loss.

    Attributes:
        kept: the Top-k of the newest gradient.
        loss: the loss of norm by the selection.
    """

    kept: Sparse

    def __init__(self, options: CompressionOptions, sizes: Sequence[int]) -> None:
        self._quotas = quotas(parts_of(sizes, options.scope), options.ratio or 1.0)
        self.loss = LossOfNorm(sizes if options.norm == "layer-sum" else None)

    def add(self, gradient: Vector) -> dict[str, float]:
        """Select the Top-k of a gradient; return ρ and s."""
        self.kept = sparsify(gradient, self._quotas, choose=largest)
        s = self.loss.add(gradient, self.kept)
        return {"rho": self.loss.rho, "rho_mean": s}


@dataclass
class Ballot:
    """The votes of a round, and their result.

    Attributes:
        votes: whether to compress, by worker.
        verdict: the result; None until all have voted.
    """

    votes: dict[int, bool] = field(default_factory=dict)
    verdict: bool | None = None

    def count(self) -> None:
        """Count the votes: compress if at least max(1, floor(n / 2)) of n are in favour."""
        self.verdict = sum(self.votes.values()) >= max(1, len(self.votes) // 2)


def _sum(values: Vector, ends: NDArray[np.int_]) -> float:
    """Return the sum of the norms of the parts with these ends."""
    return sum(sqrt(_squared(part)) for part in np.split(values, ends[:-1]))


def _squared(values: Vector) -> float:
    """Return the squared norm, in float64.

    Without ``@``: BLAS starts its own threads, which spin for longer than this takes.
    """
    return float(np.square(values, dtype=np.float64).sum())
