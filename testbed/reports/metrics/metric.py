"""The definition of a metric, and the conversion of samples to prometheus_client families."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from prometheus_client import metrics_core

Kind = Literal["counter", "gauge", "histogram"]

RUN_LABELS = ("run", "algorithm")

FAMILIES: dict[Kind, Any] = {
    "counter": metrics_core.CounterMetricFamily,
    "gauge": metrics_core.GaugeMetricFamily,
    "histogram": metrics_core.HistogramMetricFamily,
}


@dataclass(frozen=True)
class Metric:
    """The definition of a metric; by convention its name contains its kind and unit.

    Attributes:
        source: what its values are read from: an event in events.jsonl, or another part of a run.
        labels: in addition to RUN_LABELS.
        measured_in: the unit, if the name does not end with it.
        histogram: whether it is a histogram.
    """

    name: str
    help: str
    source: str
    labels: tuple[str, ...] = ()
    measured_in: str = ""
    histogram: bool = False

    @property
    def kind(self) -> Kind:
        """Kind of metric; a counter's name ends with ``_total``."""
        if self.histogram:
            return "histogram"
        return "counter" if self.name.endswith("_total") else "gauge"

    @property
    def unit(self) -> str:
        """Declared unit; by default the last word of the name."""
        return self.measured_in or self.name.removesuffix("_total").rpartition("_")[2]

    def family(self) -> Any:
        """Return an empty family for this metric."""
        return FAMILIES[self.kind](self.name, self.help, labels=(*RUN_LABELS, *self.labels))


class Sample(NamedTuple):
    """A metric's value for one set of labels, in the order in which the metric declares them."""

    metric: Metric
    value: float  # of a histogram: the sum
    labels: tuple[str, ...] = ()
    buckets: Sequence[tuple[str, float]] = ()  # of a histogram: upper bound and cumulative count


def families(samples: Iterable[Sample], run: Sequence[str]) -> dict[str, metrics_core.Metric]:
    """Return the families of samples, by metric name.

    Args:
        samples: in any order.
        run: the values of RUN_LABELS.
    """
    found: dict[str, Any] = {}
    for metric, value, labels, buckets in samples:
        if metric.name not in found:
            found[metric.name] = metric.family()
        values = (buckets, value) if buckets else (value,)
        found[metric.name].add_metric((*run, *labels), *values)
    return found
