"""Replay of an ended run: its metrics as scrapes would have read them, step by step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from heapq import merge
from math import ceil, inf
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np
from prometheus_client.metrics_core import Metric as Family

from testbed.reports.any_run import AnyRun
from testbed.reports.metrics.declared import METRICS
from testbed.reports.metrics.outline import Outline
from testbed.reports.metrics.reading import MetricsSink
from testbed.reports.metrics.scraped import ScrapedSink
from testbed.reports.metrics.workload import WORKLOAD_METRICS, WorkloadMetrics
from testbed.reports.workload import WorkloadRun
from testbed.telemetry.entry import Entry
from testbed.telemetry.event_kinds import WorkloadBegun
from testbed.telemetry.ps_events import Started
from testbed.telemetry.rows import MetricRow, NodeRow, PairRow, Reading, TrafficRow, joined
from testbed.values.topology import Plan

if TYPE_CHECKING:
    import pandas as pd

STEP_SECONDS = 5.0
"""Emulated time between two full samples."""

ALL = (*METRICS, *WORKLOAD_METRICS)

SOURCES = {metric.name: metric.source.split(", ") for metric in ALL}

Record = tuple[float, Entry | Reading]
"""An event or a row, and its emulated seconds; what was before the start is at 0."""


@dataclass(frozen=True)
class Moment:
    """A snapshot of the metrics."""

    emulated: float  # seconds since the training started
    # by metric name; between two steps, only the gauges that an event has changed
    families: dict[str, Family]


class Replay:
    """Replays a run's record to a metrics sink.

    Args:
        run: an ended run, live or simulated, or of a workload.
        plan: the run's plan.
        per_worker: whether every worker is shown, regardless of MOST_WORKERS.

    Raises:
        TestbedError: the run folder is damaged, or written by a newer version of testbed.
    """

    def __init__(self, run: AnyRun, plan: Plan, *, per_worker: bool = False) -> None:
        plan, scale = plan.named(run.name), run.scenario.time_scale
        self._sink: ScrapedSink
        if isinstance(run, WorkloadRun):
            self._sink = WorkloadMetrics(plan, seconds=lambda: 0.0)
            readings = [*_rows(NodeRow, run.nodes), *_rows(MetricRow, run.metrics)]
            self._rows = joined(())
        else:
            outline = Outline.of(run.scenario, plan, per_worker=per_worker)
            self._sink = MetricsSink(outline, seconds=lambda: 0.0)
            readings = _rows(TrafficRow, run.traffic)
            self._rows = run.update_rows()
        records: list[Record] = [
            *(((entry.elapsed_seconds or 0.0) * scale, entry) for entry in run.entries),
            *((row.time_seconds, row) for row in readings if row.time_seconds is not None),
        ]
        self._records = sorted(records, key=itemgetter(0))
        self._run = run
        self.started = _started(run)

    @property
    def seconds(self) -> float:
        """Emulated seconds from the start to the last record."""
        last = float(self._rows["time_seconds"].max()) if len(self._rows) else 0.0
        return max([last, *(moment for moment, _ in self._records)])

    def moments(self) -> Iterator[Moment]:
        """Yield a snapshot for every step, and in between for every event that changes a gauge."""
        records: Iterator[tuple[float, Entry | Reading | None]]
        records = merge(self._records, self._pairs(), [(inf, None)], key=itemgetter(0))
        at, what = next(records)
        for step in range(ceil(self.seconds / STEP_SECONDS) + 1):
            until = step * STEP_SECONDS
            while what is not None and at <= until:
                self._tell_rows(at)
                self._tell(what, at)
                if isinstance(what, Entry) and (changed := self._changed_by(what.name)):
                    yield Moment(at, changed)
                at, what = next(records)
            self._tell_rows(until)
            self._sink.time_passed(min(until, self.seconds))
            yield Moment(until, self._sink.families())

    def _pairs(self) -> Iterator[Record]:
        """Yield the pairs of a workload as the steps show them: at most one row of each a step."""
        if isinstance(self._run, WorkloadRun):
            for part in self._run.last_pairs(every_seconds=STEP_SECONDS):
                yield from zip(part["time_seconds"], _rows(PairRow, part), strict=True)

    def _tell_rows(self, until: float) -> None:
        count = int(np.searchsorted(self._rows["time_seconds"], until, side="right"))
        self._sink.updates(self._rows[:count], now=until)
        self._rows = self._rows[count:]

    def _tell(self, what: Entry | Reading, at: float) -> None:
        self._sink.time_passed(at)
        if isinstance(what, Entry):
            self._sink.event(what)
        else:
            self._sink.readings([what])

    def _changed_by(self, event: str) -> dict[str, Family]:
        """Return the gauges whose source is the event of this name."""
        if event == "load":  # once a second: the steps are enough
            return {}
        return {
            name: family
            for name, family in self._sink.families().items()
            if family.type == "gauge" and event in SOURCES[name]
        }


def _rows(kind: type[Reading], table: pd.DataFrame) -> list[Reading]:
    """Return the rows of a table; None for what was not measured."""
    values = table[list(kind._fields)].astype(object)
    return [kind(*row) for row in values.where(values.notna(), None).to_numpy()]


def _started(run: AnyRun) -> float:
    """Return when the run's clock started (seconds since 1970); of a simulation, its creation."""
    for entry in () if run.scenario.simulated else run.entries:
        if isinstance(entry.event, Started | WorkloadBegun):
            return entry.time
    return datetime.fromisoformat(run.state.created).timestamp()
