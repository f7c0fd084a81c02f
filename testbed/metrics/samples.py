"""Samples of the declared metrics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from testbed.metrics.declared import BUCKETS
from testbed.metrics.metric import RUN_LABELS, Metric

ENDS = (*(f"{bound:.1f}" for bound in BUCKETS), "+Inf")
"""The label ``le`` of each bucket."""


class Sample(NamedTuple):
    """A metric's value for some labels, which are those that the metric declares, in order."""

    metric: Metric
    value: float
    labels: tuple[str, ...] = ()
    suffix: str = ""  # of a histogram: _bucket, _sum or _count
    end: str = ""  # of a bucket


@dataclass(frozen=True)
class RunLabels:
    """What all samples of a run are labelled with."""

    run: str
    algorithm: str

    def of(self, sample: Sample) -> dict[str, str]:
        """All labels of a sample."""
        names = (*RUN_LABELS, *sample.metric.labels, *(("le",) if sample.end else ()))
        ends = (sample.end,) if sample.end else ()
        return dict(zip(names, (self.run, self.algorithm, *sample.labels, *ends), strict=True))


def histogram(
    metric: Metric, counts: Iterable[int], total: float, labels: tuple[str, ...]
) -> Iterator[Sample]:
    """The samples of a histogram.

    Args:
        metric: which.
        counts: how many values lie in each bucket, not cumulated.
        total: the sum of all values.
        labels: as in Sample.
    """
    cumulated = 0
    for end, count in zip(ENDS, counts, strict=True):
        cumulated += int(count)
        yield Sample(metric, cumulated, labels, "_bucket", end)
    yield Sample(metric, cumulated, labels, "_count")
    yield Sample(metric, total, labels, "_sum")
