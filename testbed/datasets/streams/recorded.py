"""Change of rates over time from a trace: a factor that changes in steps."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import ceil, inf

from testbed.values.traces import Trace

ROUNDING = 1e-9
"""Relative tolerance for the float rounding of an integral."""


@dataclass(frozen=True)
class Recorded:
    """The change of rates by a trace; see ``over_time`` for the interface.

    Attributes:
        trace: the factor over time.
        offset: position in the trace at the start of training, in seconds.
    """

    trace: Trace
    offset: float = 0.0

    def amount(self, time: float) -> float:
        """Return the factor's integral from 0 to ``time``, emulated seconds."""
        return self._integral(self.offset + time) - self._integral(self.offset)

    def reached(self, amount: float) -> float:
        """Return the first time at which the integral reaches ``amount``; infinite for never."""
        if amount <= 0:
            return 0.0
        trace, sums, lap = self.trace, self._sums, 0
        left = amount + self._integral(self.offset)
        if trace.repeats:
            if not sums[-1]:
                return inf
            lap = ceil(left / sums[-1] * (1 - ROUNDING)) - 1  # at its end, not the next one's start
            left = min(left - lap * sums[-1], sums[-1])
        place = min(bisect_left(sums, left * (1 - ROUNDING)), len(trace.values)) - 1
        begin, factor = lap * trace.end + trace.times[max(0, place)], trace.values[place]
        if not factor:
            return inf
        return begin + (left - sums[place]) / factor - self.offset

    @cached_property
    def _sums(self) -> Sequence[float]:
        """The integral at every change and, for a repeated trace, at its end."""
        trace = self.trace
        ends = (*trace.times[1:], trace.end) if trace.repeats else trace.times[1:]
        parts = zip(trace.values, trace.times, ends, strict=False)
        return (0.0, *accumulate(value * (end - begin) for value, begin, end in parts))

    def _integral(self, moment: float) -> float:
        """Return the integral from the start of the trace."""
        trace = self.trace
        laps, inside = divmod(moment, trace.end) if trace.repeats else (0.0, moment)
        place = bisect_right(trace.times, inside) - 1
        whole = laps * self._sums[-1] if laps else 0.0
        return whole + self._sums[place] + trace.values[place] * (inside - trace.times[place])
