"""When the samples of one device's stream come."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, inf

from testbed.streams.over_time import Change
from testbed.streams.recorded import Recorded

WINDOW_SECONDS = 1.0
"""Over so long a device measures its rate."""

ROUNDING = 1e-9
"""Of a sample: what comes at a moment has come by then, whichever way a float was rounded."""


@dataclass(frozen=True)
class Arrivals:
    """The arrivals of a stream whose samples are numbered from 1 on.

    Sample k is there once the stream's integral has come to k: a fraction of a sample is carried
    over from one moment to the next and never lost.

    Attributes:
        rate: samples an emulated second, before the change over time.
        lot: so many come together, when the last of them is made.
    """

    rate: float
    change: Change | Recorded
    lot: int = 1

    def count(self, time: float) -> int:
        """How many samples have come by an emulated time."""
        return self._made_by(time) // self.lot * self.lot

    def moment(self, sample: int) -> float:
        """When a sample comes; infinite for never."""
        return self.made(ceil(sample / self.lot) * self.lot)

    def made(self, sample: int) -> float:
        """When a sample is made, which then waits for the others of its lot; infinite for never."""
        if sample <= 0:
            return 0.0
        return self.change.reached(sample / self.rate) if self.rate > 0 else inf

    def _made_by(self, time: float) -> int:
        amount = self.rate * self.change.amount(max(0.0, time))
        return floor(amount + ROUNDING * max(1.0, amount * 1e-3))

    def measured(self, time: float) -> float:
        """The rate that a device sees at ``time``, of the samples in the second up to the last.

        It is a number of intervals between samples over their length, so that a constant rate is
        measured exactly. Until two samples have come it is what the stream was announced with.
        """
        last = self.count(time)
        if last < 2:
            return self.rate
        until = self.made(last)
        first = min(last - 1, self._made_by(until - WINDOW_SECONDS))
        return (last - first) / (until - self.made(first))

    def silent_from(self, time: float, *, until: int, patience: float) -> float:
        """From when on nothing has come for ``patience`` seconds, counted from ``time`` on.

        Args:
            time: when the waiting begins.
            until: the sample that is waited for; silence after it does not matter.
            patience: may be infinite.

        Returns:
            The end of the first such silence; infinite if sample ``until`` comes before.
        """
        if self.moment(until) - time <= patience:
            return inf
        heard = time
        for sample in range(self.count(time) + 1, until + 1):
            comes = self.moment(sample)
            if comes - heard > patience:
                return heard + patience
            heard = max(heard, comes)
        return inf
