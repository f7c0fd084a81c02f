"""Arrival times of the samples of one device's stream."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, inf

from testbed.datasets.streams.over_time import RateChange, Recorded

WINDOW_SECONDS = 1.0
"""The window in which a device measures its rate."""

ROUNDING = 1e-9
"""Tolerance, in samples: a sample counts as arrived at its exact time despite float rounding."""


@dataclass(frozen=True)
class Arrivals:
    """The arrivals of a stream whose samples are numbered from 1 on.

    Sample k arrives when the integral of the rate reaches k: fractions of a sample are carried over
    and never lost.

    Attributes:
        rate: samples per emulated second, before the change over time.
        lot: number of samples that arrive together, when the last of them is produced.
    """

    rate: float
    change: RateChange | Recorded
    lot: int = 1

    def count(self, time: float) -> int:
        """Return how many samples have arrived by an emulated time."""
        return self._made_by(time) // self.lot * self.lot

    def moment(self, sample: int) -> float:
        """Return when a sample arrives; infinite for never."""
        return self.made(ceil(sample / self.lot) * self.lot)

    def made(self, sample: int) -> float:
        """Return when a sample is produced, before it waits for its lot; infinite for never."""
        if sample <= 0:
            return 0.0
        return self.change.reached(sample / self.rate) if self.rate > 0 else inf

    def _made_by(self, time: float) -> int:
        amount = self.rate * self.change.amount(max(0.0, time))
        return floor(amount + ROUNDING * max(1.0, amount * 1e-3))

    def measured(self, time: float) -> float:
        """Return the rate that a device measures at ``time``, in the second up to the last sample.

        It is the number of intervals between samples divided by their total length, so that it is
        exact for a constant rate. Before two samples have arrived, it is the announced rate.
        """
        last = self.count(time)
        if last < 2:
            return self.rate
        until = self.made(last)
        first = min(last - 1, self._made_by(until - WINDOW_SECONDS))
        return (last - first) / (until - self.made(first))

    def silent_from(self, time: float, *, until: int, patience: float) -> float:
        """Return when no sample has arrived for ``patience`` seconds, counted from ``time`` on.

        Args:
            time: when the wait begins.
            until: the awaited sample; silence after it does not matter.
            patience: may be infinite.

        Returns:
            The time at which the patience ends; infinite if sample ``until`` arrives first.
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
