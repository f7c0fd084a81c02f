"""Adaptive compression: Top-k of a gradient, when it has lately lost little of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import sqrt
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from testbed.algorithms.base import AlgorithmConfig
from testbed.compress.topk import Scope, largest, parts_of, quotas, sparsify
from testbed.payloads import Sparse, Vector
from testbed.values.fields import NonNegative, Share

EWMA_WEIGHT = 0.1


class CompressionOptions(AlgorithmConfig):
    """What a scenario may say of adaptive compression.

    Attributes:
        ratio: CR; without it nothing is compressed.
        delta: δ.
        scope: Top-k of the whole gradient, as the paper writes it, or of each tensor separately, as
            the authors' code has it.
        decide: whether to compress is each device's own decision, as the paper has it; or that of
            a majority of the round's devices, by which all abide, as in the authors' code.
        norm: of which a part is lost: `squared`, that of the gradient, as the paper has it; or
            `layer-sum`, those of its tensors, not squared and added up, as the authors' code does.
    """

    ratio: Share | None = None
    delta: NonNegative = 0.3
    scope: Scope = "global"
    decide: Literal["device", "majority"] = "device"
    norm: Literal["squared", "layer-sum"] = "squared"


@dataclass
class LossOfNorm:
    """s, a moving average of ρ = | |g|² - |ĝ|² | / |g|²: what Top-k has lost of a gradient lately.

    Attributes:
        sizes: of the tensors whose norms are added up, in the place of |g|²; None for that.
        weight: of the newest ρ in s; the first is s.
        rho: the newest.
        average: s; None before the first.
    """

    sizes: Sequence[int] | None = None
    weight: float = EWMA_WEIGHT
    rho: float = 0.0
    average: float | None = None

    def add(self, gradient: Vector, kept: Sparse) -> float:
        """Take one more gradient and what Top-k keeps of it; returns s. A gradient of 0 has ρ 0."""
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
    """A worker's Top-k, and what it loses.

    Attributes:
        kept: of the newest gradient.
        loss: of norm.
    """

    kept: Sparse

    def __init__(self, options: CompressionOptions, sizes: Sequence[int]) -> None:
        self._quotas = quotas(parts_of(sizes, options.scope), options.ratio or 1.0)
        self.loss = LossOfNorm(sizes if options.norm == "layer-sum" else None)

    def add(self, gradient: Vector) -> dict[str, float]:
        """Select of one more gradient; returns ρ and s."""
        self.kept = sparsify(gradient, self._quotas, choose=largest)
        s = self.loss.add(gradient, self.kept)
        return {"rho": self.loss.rho, "rho_mean": s}


@dataclass
class Ballot:
    """The votes of a round, and what came of them.

    Attributes:
        votes: whether to compress, by worker.
        verdict: None until all have voted.
    """

    votes: dict[int, bool] = field(default_factory=dict)
    verdict: bool | None = None

    def count(self) -> None:
        """All have voted: compress if max(1, floor(n / 2)) or more of n want to."""
        self.verdict = sum(self.votes.values()) >= max(1, len(self.votes) // 2)


def _sum(values: Vector, ends: NDArray[np.int_]) -> float:
    """The norms of the parts that end there, added up."""
    return sum(sqrt(_squared(part)) for part in np.split(values, ends[:-1]))


def _squared(values: Vector) -> float:
    """The squared norm, in float64.

    Not by ``@``: BLAS has threads of its own, which spin for longer than this takes.
    """
    return float(np.square(values, dtype=np.float64).sum())
