"""Adaptive compression: Top-k of each tensor, when it loses little and most workers say so."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from testbed.payloads import Sparse, Vector

EWMA_WEIGHT = 0.1


@dataclass
class LossOfNorm:
    """s, a moving average of ρ = | |g|² - |ĝ|² | / |g|²: what Top-k has lost of a gradient lately.

    Attributes:
        weight: of the newest ρ in s; the first is s.
        rho: the newest.
        average: s; None before the first.
    """

    weight: float = EWMA_WEIGHT
    rho: float = 0.0
    average: float | None = None

    def add(self, gradient: Vector, kept: Sparse) -> float:
        """Take one more gradient and what Top-k keeps of it; returns s. A gradient of 0 has ρ 0."""
        whole, part = _squared(gradient), _squared(kept.values)
        self.rho = abs(whole - part) / whole if whole else 0.0
        before = self.rho if self.average is None else self.average
        self.average = (1 - self.weight) * before + self.weight * self.rho
        return self.average


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


def _squared(values: Vector) -> float:
    """The squared norm, in float64."""
    wide = values.astype(np.float64)
    return float(wide @ wide)
