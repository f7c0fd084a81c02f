"""The implicit momentum that asynchrony causes (ADSP, theorem 1)."""

from __future__ import annotations

from collections.abc import Sequence


def implicit_momentum(commit_rates: Sequence[float], *, steps: Sequence[float]) -> float:
    """Return the implicit momentum of commits that are applied on arrival: 1 - p, where

        p = 1 / (1 + (1 - 1/m) Σ_i Γ / (ΔC_i v_i)),

    so that E[W_{t+1} - W_t] = (1 - p) E[W_t - W_{t-1}] - p η E[U], without explicit momentum
    (H. Hu, D. Wang, C. Wu, AAAI 2020, equation 2). Time is measured in check periods: Γ is 1. In
    seconds, the result would depend on the unit.

    Args:
        commit_rates: ΔC_i, commits of each worker per check period; above zero.
        steps: v_i, mini-batches of each worker per check period; above zero.

    Raises:
        ValueError: the lengths differ, or there are no workers.
    """
    if not commit_rates:
        raise ValueError("no workers, expected at least one")
    share = 1 - 1 / len(commit_rates)
    total = sum(1 / (rate * v) for rate, v in zip(commit_rates, steps, strict=True))
    return 1 - 1 / (1 + share * total)
