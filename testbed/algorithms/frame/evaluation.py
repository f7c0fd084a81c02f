"""The schedule of evaluations during training."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor

ROUNDING = 1e-9
"""Tolerance, relative to an interval: a time this close below a multiple counts as reached."""


@dataclass(frozen=True)
class Schedule:
    """A period in updates or in emulated seconds; the other is None."""

    updates: int | None
    seconds: float | None

    def after(self, version: int, time: float) -> Due:
        """Return the next multiple after an evaluation; missed evaluations are skipped."""
        if self.seconds is not None:
            passed = floor(time / self.seconds + ROUNDING)
            return Due(time=(passed + 1) * self.seconds)
        assert self.updates is not None
        return Due(version=(version // self.updates + 1) * self.updates)


@dataclass(frozen=True)
class Due:
    """When to evaluate next: once both this version and this time are reached."""

    version: int = 0
    time: float = 0.0
