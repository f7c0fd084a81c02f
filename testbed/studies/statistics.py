"""Statistics over seeds: estimates with intervals, and tests between two methods.

A value that a run has not reached is censored at the end of this run: it is greater than that,
and unknown. Its mean does not exist; the estimate is the median of Kaplan and Meier (1958).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import exp, inf, isfinite, isnan, log, nan, sqrt
from statistics import NormalDist
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from scipy.stats import CensoredData

Numbers = NDArray[np.float64]
IntervalKind = Literal["range", "deviation", "t", "bootstrap"]

RESAMPLES = 10_000


@dataclass(frozen=True)
class Interval:
    """What is shown around a mean over the seeds.

    Attributes:
        kind: ``range`` from minimum to maximum; ``deviation``, one standard deviation; ``t`` and
            ``bootstrap``, the confidence interval of the mean by Student's distribution and by
            percentiles of resampled means.
        confidence: the level of a confidence interval.
    """

    kind: IntervalKind = "range"
    confidence: float = 0.95

    @property
    def title(self) -> str:
        """What it is, as text."""
        if self.kind == "range":
            return "minimum and maximum"
        if self.kind == "deviation":
            return "standard deviation"
        method = "Student's t" if self.kind == "t" else "bootstrap"
        return f"{100 * self.confidence:g} % confidence interval ({method})"

    @property
    def of_differences(self) -> Interval:
        """The interval of a difference: a confidence interval unless another one is wanted."""
        return Interval("t", self.confidence) if self.kind == "range" else self

    def around_mean(self, values: Numbers) -> tuple[Numbers, Numbers]:
        """Return the lower and the upper end; both are the value itself if there is one seed.

        Args:
            values: a row per seed, one or more columns.
        """
        seeds, mean = len(values), values.mean(0)
        if self.kind == "range":
            return values.min(0), values.max(0)
        if seeds == 1:
            return mean, mean
        if self.kind == "bootstrap":
            return self._bootstrap(values)
        half = values.std(0, ddof=1)
        if self.kind == "t":
            from scipy.stats import t

            half = half * t.ppf((1 + self.confidence) / 2, seeds - 1) / sqrt(seeds)
        return mean - half, mean + half

    def _bootstrap(self, values: Numbers) -> tuple[Numbers, Numbers]:
        """Return percentiles of the means of resampled seeds; the same draws for all columns."""
        seeds, rest = len(values), (1 - self.confidence) / 2
        draws = np.random.default_rng(0).multinomial(seeds, [1 / seeds] * seeds, size=RESAMPLES)
        low, high = np.quantile(draws @ values / seeds, [rest, 1 - rest], axis=0)
        return low, high


@dataclass(frozen=True)
class Estimate:
    """A measure of a case over its seeds."""

    seeds: int
    reached: int  # seeds whose value is not `never`
    center: float  # the mean, or the median if a value was never reached
    deviation: float  # standard deviation of the sample; NaN if it does not exist
    low: float
    high: float
    kind: IntervalKind

    def show(self, show: Callable[[float], str]) -> str:
        """Format it for one cell."""
        if self.reached == 0:
            return show(inf)
        between = f" ({show(self.low)} to {show(self.high)})"
        if self.reached < self.seeds:
            return f"median {show(self.center)}{between}, {self.reached} of {self.seeds} reached"
        if show(self.low) == show(self.high):
            return show(self.center)
        if self.kind == "deviation":
            return f"{show(self.center)} ± {show(self.deviation)}"
        return f"{show(self.center)}{between}"


def estimate(values: Sequence[float], ends: Sequence[float], interval: Interval) -> Estimate:
    """Return the estimate of a measure.

    Args:
        values: of every seed; infinity if it was never reached.
        ends: where a value would be censored: at the end of each run, in the measure's unit.
        interval: the interval. That of a median is a confidence interval too, except for
            ``range``.
    """
    numbers = np.array(values, np.float64)
    if np.isnan(numbers).any():
        return Estimate(len(values), len(values), nan, nan, nan, nan, interval.kind)
    reached = int((numbers != inf).sum())
    if reached == len(values):
        low, high = map(float, interval.around_mean(numbers))
        deviation = float(numbers.std(ddof=1)) if len(values) > 1 else nan
        center = float(numbers.mean())
    else:
        center, low, high = median_reached(values, ends, interval.confidence)
        deviation = nan
        if interval.kind == "range":
            low, high = min(values), max(values)
    return Estimate(len(values), reached, center, deviation, low, high, interval.kind)


def median_reached(
    values: Sequence[float], ends: Sequence[float], confidence: float
) -> tuple[float, float, float]:
    """Return the Kaplan-Meier median and its confidence interval (Brookmeyer and Crowley, 1982).

    The interval inverts that of the curve: Greenwood's variance on the log-log scale. Each of the
    three is infinity where the curve does not fall to a half. The curve has no upper limit once
    nothing is left of it, as its variance does not exist then.
    """
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    left, variance = Fraction(1), 0.0  # rounding must not keep the curve above a half
    first = {"median": inf, "low": inf, "high": inf}
    for time in sorted({value for value in values if value != inf}):
        at_risk = sum(min(pair) >= time for pair in zip(values, ends, strict=True))
        events = values.count(time)
        left *= 1 - Fraction(events, at_risk)
        curves: dict[str, float | Fraction] = {"median": left, "low": left}
        if left > 0:
            variance += events / (at_risk * (at_risk - events))
            half = z * sqrt(variance) / log(left)  # below 0
            curves |= {"low": left ** exp(-half), "high": left ** exp(half)}
        for name, height in curves.items():
            if height <= 0.5:
                first[name] = min(first[name], time)
    return first["median"], first["low"], first["high"]


@dataclass(frozen=True)
class Significance:
    """A test of the difference between two cases."""

    name: str  # of the test; empty if there is nothing to test
    p: float  # probability of such a difference, or a larger one, if there is none; NaN without
    signed_rank: float = nan  # p of Wilcoxon's signed-rank test, of pairs
    difference: float = nan  # mean over the pairs
    low: float = nan  # of its interval
    high: float = nan


def paired(first: Sequence[float], second: Sequence[float], interval: Interval) -> Significance:
    """Test the differences, first minus second, of runs that have a seed in common.

    There is no test of one seed, of differences that are all equal, or if a value is NaN.
    """
    from scipy.stats import ttest_1samp, wilcoxon

    differences = np.array(first, np.float64) - np.array(second, np.float64)
    low, high = map(float, interval.of_differences.around_mean(differences))
    mean = float(differences.mean())
    if len(differences) < 2 or np.ptp(differences) == 0 or isnan(mean):
        return Significance("", nan, nan, mean, low, high)
    p, signed_rank = ttest_1samp(differences, 0).pvalue, wilcoxon(differences).pvalue
    return Significance("paired t", float(p), float(signed_rank), mean, low, high)


def log_rank(
    first: tuple[Sequence[float], Sequence[float]], second: tuple[Sequence[float], Sequence[float]]
) -> Significance:
    """Test whether two cases reach a value equally soon; each has its values and its ends.

    A run that never reaches it counts up to its end. The test does not pair the seeds. There is no
    test if no run reaches it, if a value is NaN, or if no run of a case has a value or an end.
    """
    values = (*first[0], *second[0])
    lacking = any(not any(map(isfinite, (*case, *ends))) for case, ends in (first, second))
    if lacking or not any(map(isfinite, values)) or any(map(isnan, values)):
        return Significance("", nan)
    from scipy.stats import logrank

    return Significance("log-rank", float(logrank(_censored(*first), _censored(*second)).pvalue))


def _censored(values: Sequence[float], ends: Sequence[float]) -> CensoredData:
    from scipy.stats import CensoredData

    known = [one for one in values if isfinite(one)]
    last = max([*known, *filter(isfinite, ends)])
    after = [min(end, last) for one, end in zip(values, ends, strict=True) if not isfinite(one)]
    return CensoredData(uncensored=known, right=after)


def holm(ps: Sequence[float]) -> list[float]:
    """Return p-values corrected for the number of tests (Holm, 1979); NaN is no test."""
    tested = sorted((p, index) for index, p in enumerate(ps) if not isnan(p))
    corrected, highest = [nan] * len(ps), 0.0
    for place, (p, index) in enumerate(tested):
        highest = max(highest, min(1.0, (len(tested) - place) * p))
        corrected[index] = highest
    return corrected
