"""Export of runs in OpenMetrics text format with timestamps, for Prometheus to create blocks from.

Samples are grouped by family, within a family by series, and within a series sorted by time.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from types import SimpleNamespace
from typing import Any, TextIO

from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.samples import Sample

from testbed.reports.metrics.replay import ALL, Replay

END = "# EOF\n"

GENERATE: Callable[[Any], bytes] = generate_latest


@dataclass
class Series:
    """The samples of one series: times, in seconds since 1970, and values."""

    name: str
    labels: dict[str, str]
    times: array[float] = field(default_factory=lambda: array("d"))
    values: array[float] = field(default_factory=lambda: array("d"))

    def add(self, time: float, value: float) -> None:
        """Append a sample, replacing the previous one if both are in the same millisecond."""
        time = round(time, 3)
        if self.times and self.times[-1] >= time:
            self.values[-1] = value
            return
        self.times.append(time)
        self.values.append(value)

    def samples(self) -> Iterator[Sample]:
        """Yield the samples as objects of the client library."""
        for time, value in zip(self.times, self.values, strict=True):
            yield Sample(self.name, self.labels, value, time)


Group = dict[tuple[str, str], Series]
"""By name and bucket: one series, or all series of a histogram, which share their times."""


def write_openmetrics(file: TextIO, replays: Iterable[Replay], *, end: float | None = None) -> int:
    """Write the metrics of ended runs; return the number of samples.

    Args:
        file: the output.
        replays: the runs.
        end: end of the longest run (seconds since 1970), with a common start for all runs; None
            keeps each run's actual times.
    """
    runs = list(replays)
    common = None if end is None else end - max(run.seconds for run in runs)
    groups: dict[str, dict[tuple[str, ...], Group]] = {metric.name: {} for metric in ALL}
    for place, run in enumerate(runs):
        start = run.started if common is None else common
        for moment in run.moments():
            for name, family in moment.families.items():
                for sample in family.samples:
                    own = {label: value for label, value in sample.labels.items() if label != "le"}
                    group = groups[name].setdefault((str(place), *own.values()), {})
                    part = (sample.name, sample.labels.get("le", ""))
                    if part not in group:
                        group[part] = Series(sample.name, sample.labels)
                    group[part].add(start + moment.emulated, sample.value)
    count = 0
    for metric in ALL:
        family = metric.family()
        for place, group in enumerate(groups[metric.name].values()):
            together = zip(*(series.samples() for series in group.values()), strict=True)
            family.samples = chain.from_iterable(together)
            text = GENERATE(SimpleNamespace(collect=lambda one=family: [one])).decode()
            file.write(_without_end(text, header=place == 0))
            count += sum(len(series.times) for series in group.values())
    file.write(END)
    return count


def _without_end(text: str, *, header: bool) -> str:
    """Return the generated text of a series without its end; only a family's first has a header."""
    body = text.removesuffix(END)
    return body if header else body.split("\n", 2)[2]
