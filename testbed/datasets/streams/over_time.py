"""Change of rates over time: a factor that multiplies every device's own rate.

``amount(t)`` is the factor's integral from 0 to t: the samples of a stream of one sample per second
by then. ``reached(amount)`` is its inverse, the time at which the integral reaches an amount. Both
are exact except for rounding, so that long streams do not drift.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import ceil, cos, inf, pi
from typing import Annotated, Literal

from pydantic import Field

from testbed.values.family import Named
from testbed.values.fields import PositiveDuration, Share, StrictModel
from testbed.values.traces import Trace

HALVINGS = 80
"""Bisection steps for the inverse of a sine's integral; more than a float has bits."""


Factor = Annotated[float, Field(ge=0, le=1000, strict=True)]


class RateChange(StrictModel, ABC):
    """Base of the options for changes of rates."""

    @abstractmethod
    def amount(self, time: float) -> float:
        """Return the factor's integral from 0 to ``time``, emulated seconds."""

    @abstractmethod
    def reached(self, amount: float) -> float:
        """Return the first time at which the integral reaches ``amount``; infinite for never."""

    @property
    def falls_silent(self) -> bool:
        """Whether there are periods without samples."""
        return False


class Steady(RateChange):
    """Rates do not change."""

    name: Literal["steady"]

    def amount(self, time: float) -> float:
        return time

    def reached(self, amount: float) -> float:
        return amount


class RateStep(RateChange):
    """Rates are multiplied by a factor from a given time on.

    Attributes:
        at: emulated time of the change.
        factor: the factor; 0 stops the streams.
    """

    name: Literal["step"]
    at: PositiveDuration
    factor: Factor

    def amount(self, time: float) -> float:
        return time if time <= self.at else self.at + self.factor * (time - self.at)

    def reached(self, amount: float) -> float:
        if amount <= self.at:
            return amount
        return self.at + (amount - self.at) / self.factor if self.factor else inf

    @property
    def falls_silent(self) -> bool:
        return self.factor == 0


class Sine(RateChange):
    """Rates oscillate around their mean by the factor 1 + a sin(2 pi t / P).

    Attributes:
        period: P, in emulated time.
        amplitude: a; with 1, rates reach 0 once per period.
    """

    name: Literal["sine"]
    period: PositiveDuration
    amplitude: Share

    def amount(self, time: float) -> float:
        turn = 2 * pi / self.period
        return time + self.amplitude / turn * (1 - cos(turn * time))

    def reached(self, amount: float) -> float:
        earliest = max(0.0, amount - self.amplitude * self.period / pi)  # never further ahead
        latest = max(0.0, amount)
        for _ in range(HALVINGS):
            middle = (earliest + latest) / 2
            if self.amount(middle) < amount:
                earliest = middle
            else:
                latest = middle
        return latest


class OnOff(RateChange):
    """Streams are on and off alternately.

    Attributes:
        on: length of an on phase.
        off: length of an off phase.
    """

    name: Literal["on-off"]
    on: PositiveDuration
    off: PositiveDuration

    def amount(self, time: float) -> float:
        cycles, rest = divmod(time, self.on + self.off)
        return cycles * self.on + min(rest, self.on)

    def reached(self, amount: float) -> float:
        if amount <= 0:
            return 0.0
        before = ceil(amount / self.on) - 1  # at a boundary: the end of a flow, not the next start
        return before * (self.on + self.off) + (amount - before * self.on)

    @property
    def falls_silent(self) -> bool:
        return True


class Traced(StrictModel):
    """Rates follow a recording of the factor; ``Recorded`` implements the change.

    Attributes:
        file: the recording, relative to the scenario: CSV with the columns time_seconds and factor.
        then: at its end, `repeat` it from the beginning or `hold` its last factor.
        offset: start position of a device: `drawn` from the seed, or `none` for the beginning.
    """

    name: Literal["trace"]
    file: Annotated[str, Field(min_length=1)]
    then: Literal["repeat", "hold"] = "repeat"
    offset: Literal["drawn", "none"] = "drawn"


OverTime = Annotated[Steady | RateStep | Sine | OnOff | Traced, Named()]


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
