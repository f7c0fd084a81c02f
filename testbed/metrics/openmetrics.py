"""Runs in OpenMetrics' text format with timestamps, for Prometheus to make blocks of.

Every family stands together, and within it every series, its samples in the order of their time.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TextIO

from testbed.metrics.declared import METRICS
from testbed.metrics.exposition import SeriesNames, declaration
from testbed.metrics.metric import Metric
from testbed.metrics.replay import Replay


@dataclass
class Series:
    """The samples of one series: when, in seconds since 1970, and the value."""

    name: str  # with its labels, as they are written
    times: array[float] = field(default_factory=lambda: array("d"))
    values: array[float] = field(default_factory=lambda: array("d"))

    def add(self, time: float, value: float) -> None:
        """One more; of the same millisecond, in place of the one before."""
        time = round(time, 3)
        if self.times and self.times[-1] >= time:
            self.values[-1] = value
            return
        self.times.append(time)
        self.values.append(value)

    def lines(self) -> Iterator[str]:
        """As they are written."""
        for time, value in zip(self.times, self.values, strict=True):
            yield f"{self.name} {value:.17g} {time:.3f}\n"


Group = dict[tuple[str, str], Series]
"""By suffix and bucket: one, or all of a histogram, which have the same times."""


def write_openmetrics(file: TextIO, replays: Iterable[Replay], *, end: float | None = None) -> int:
    """Write what runs were like; returns how many samples.

    Args:
        file: is written to.
        replays: of the runs.
        end: when the longest of them is to end (seconds since 1970), all beginning together; None
            for when each of them really was.
    """
    runs = list(replays)
    common = None if end is None else end - max(run.seconds for run in runs)
    groups: dict[Metric, dict[tuple[str, ...], Group]] = {metric: {} for metric in METRICS}
    for place, run in enumerate(runs):
        start = run.started if common is None else common
        names = SeriesNames(run.labels)
        for moment in run.moments():
            for sample in moment.samples:
                group = groups[sample.metric].setdefault((str(place), *sample.labels), {})
                part = (sample.suffix, sample.end)
                if part not in group:
                    group[part] = Series(names.of(sample))
                group[part].add(start + moment.emulated, sample.value)
    count = 0
    for metric, found in groups.items():
        file.writelines(declaration(metric, metric.name.removesuffix("_total")) if found else ())
        for group in found.values():
            for lines in zip(*(series.lines() for series in group.values()), strict=True):
                file.writelines(lines)
                count += len(lines)
    file.write("# EOF\n")
    return count
