"""When the model is evaluated while it is trained."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Schedule:
    """How often; one of the two is given.

    Attributes:
        updates: every so many updates, or None.
        seconds: every so many emulated seconds, or None.
    """

    updates: int | None
    seconds: float | None

    def after(self, version: int, time: float) -> Due:
        """The next multiple behind an evaluation; what was missed is not made up."""
        if self.seconds is not None:
            return Due(time=(time // self.seconds + 1) * self.seconds)
        assert self.updates is not None
        return Due(version=(version // self.updates + 1) * self.updates)


@dataclass(frozen=True)
class Due:
    """When the next evaluation is wanted: when both are reached.

    Attributes:
        version: updates in the model.
        time: emulated seconds since the start.
    """

    version: int = 0
    time: float = 0.0
