"""Samples of the declared metrics, and how Prometheus's client library takes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from prometheus_client.metrics_core import Metric as Family

from testbed.metrics.declared import BUCKETS, METRICS, RUN_LABELS, Metric

ENDS = (*(f"{bound:.1f}" for bound in BUCKETS), "+Inf")
"""The label ``le`` of each bucket."""

ORDER = {metric: place for place, metric in enumerate(METRICS)}


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


def families(samples: Iterable[Sample], run: RunLabels) -> Iterator[Family]:
    """The samples by metric, as the client library writes them."""
    ordered = sorted(samples, key=lambda sample: ORDER[sample.metric])
    for metric, own in groupby(ordered, key=lambda sample: sample.metric):
        family = Family(metric.name.removesuffix("_total"), metric.help, metric.kind)
        for sample in own:
            family.add_sample(f"{metric.name}{sample.suffix}", run.of(sample), sample.value)
        yield family
