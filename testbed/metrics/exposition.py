"""Samples as the lines of Prometheus's text formats.

A series' name and labels are most of its line and never change, so they are written once. The
client library writes them anew every time, and takes ten times as long for a run of 200 workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from testbed.metrics.declared import METRICS
from testbed.metrics.metric import Metric
from testbed.metrics.samples import RunLabels, Sample

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

ORDER = {metric.name: place for place, metric in enumerate(METRICS)}


class SeriesNames:
    """The name and labels of every series of a run, as they are written."""

    def __init__(self, labels: RunLabels) -> None:
        self._labels = labels
        self._written: dict[tuple[str, tuple[str, ...], str, str], str] = {}

    def of(self, sample: Sample) -> str:
        """Of the series that a sample belongs to."""
        key = (sample.metric.name, sample.labels, sample.suffix, sample.end)
        name = self._written.get(key)
        if name is None:
            pairs = self._labels.of(sample).items()
            inside = ",".join(f'{label}="{_escaped(value)}"' for label, value in pairs)
            name = f"{sample.metric.name}{sample.suffix}{{{inside}}}"
            self._written[key] = name
        return name


def exposition(samples: Iterable[Sample], names: SeriesNames) -> str:
    """What answers a scrape: the text format, version 0.0.4, metric by metric."""
    ordered = sorted(samples, key=lambda sample: ORDER[sample.metric.name])
    return "".join(_lines(ordered, names))


def _lines(ordered: Iterable[Sample], names: SeriesNames) -> Iterator[str]:
    for _, group in groupby(ordered, key=lambda sample: sample.metric.name):
        own = list(group)
        yield from declaration(own[0].metric, own[0].metric.name)
        for sample in own:
            yield f"{names.of(sample)} {float(sample.value)!r}\n"


def declaration(metric: Metric, family: str) -> Iterator[str]:
    """What stands above a metric's samples; OpenMetrics names a counter without ``_total``."""
    yield f"# HELP {family} {metric.help}\n"
    yield f"# TYPE {family} {metric.kind}\n"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
