"""When the model is evaluated while it is trained."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor

ROUNDING = 1e-9
"""Of an interval: a time so little before a multiple is that multiple, rounded down."""


@dataclass(frozen=True)
class Schedule:
    """Every so many updates, or every so many emulated seconds; the other is None."""

    updates: int | None
    seconds: float | None

    def after(self, version: int, time: float) -> Due:
        """The next multiple behind an evaluation; what was missed is not made up."""
        if self.seconds is not None:
            passed = floor(time / self.seconds + ROUNDING)
            return Due(time=(passed + 1) * self.seconds)
        assert self.updates is not None
        return Due(version=(version // self.updates + 1) * self.updates)


@dataclass(frozen=True)
class Due:
    """When the next evaluation is wanted: once both this version and this time are reached."""

    version: int = 0
    time: float = 0.0
