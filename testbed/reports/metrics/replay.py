"""Replay of an ended run: its metrics as scrapes would have read them, step by step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from math import ceil, inf

import numpy as np
from prometheus_client.metrics_core import Metric as Family

from testbed.reports.frames import Run
from testbed.reports.metrics.declared import METRICS
from testbed.reports.metrics.outline import Outline
from testbed.reports.metrics.reading import MetricsSink
from testbed.telemetry.entry import Entry
from testbed.telemetry.event_kinds import Started
from testbed.telemetry.events import read_events
from testbed.telemetry.recovery import read_updates
from testbed.telemetry.rows import TRAFFIC, TrafficRow
from testbed.values.topology import Plan

STEP_SECONDS = 5.0
"""Emulated time between two full samples."""

SOURCES = {metric.name: metric.source.split(", ") for metric in METRICS}

Record = tuple[float, Entry | TrafficRow]


@dataclass(frozen=True)
class Moment:
    """A snapshot of the metrics."""

    emulated: float  # seconds since the training started
    # by metric name; between two steps, only the gauges that an event has changed
    families: dict[str, Family]


class Replay:
    """Replays a run's record to a metrics sink.

    Args:
        run: an ended run, live or simulated.
        plan: the run's plan.
        per_worker: whether every worker is shown, regardless of MOST_WORKERS.

    Raises:
        TestbedError: the run folder is damaged, or written by a newer version of testbed.
    """

    def __init__(self, run: Run, plan: Plan, *, per_worker: bool = False) -> None:
        outline = Outline.of(run.scenario, plan.named(run.name), per_worker=per_worker)
        self._sink = MetricsSink(outline, seconds=lambda: 0.0)
        self._rows = read_updates(run.folder)
        self._entries = read_events(run.folder.events)
        self._records = _in_order(self._entries, run, outline.time_scale)
        self.started = _started(run, self._entries)

    @property
    def seconds(self) -> float:
        """Emulated seconds from the start to the last record."""
        last = float(self._rows["time_seconds"].max()) if len(self._rows) else 0.0
        return max([last, *(moment for moment, _ in self._records)])

    def moments(self) -> Iterator[Moment]:
        """Yield a snapshot for every step, and in between for every event that changes a gauge."""
        records: Iterator[tuple[float, Entry | TrafficRow | None]]
        records = iter([*self._records, (inf, None)])
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

    def _tell_rows(self, until: float) -> None:
        count = int(np.searchsorted(self._rows["time_seconds"], until, side="right"))
        self._sink.updates(self._rows[:count], now=until)
        self._rows = self._rows[count:]

    def _tell(self, what: Entry | TrafficRow, at: float) -> None:
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


def _in_order(entries: list[Entry], run: Run, time_scale: float) -> list[Record]:
    """Sort events and traffic readings by emulated time; records from before the start are at 0."""
    records: list[Record] = [
        ((entry.elapsed_seconds or 0.0) * time_scale, entry) for entry in entries
    ]
    table = run.traffic[list(TRAFFIC)].astype(object)
    for values in table.where(table.notna(), None).to_numpy():
        row = TrafficRow(*values)
        if row.time_seconds is not None:
            records.append((row.time_seconds, row))
    return sorted(records, key=lambda one: one[0])


def _started(run: Run, entries: list[Entry]) -> float:
    """Return when the training started (seconds since 1970); of a simulation, its creation."""
    if not run.scenario.simulated:
        for entry in entries:
            if isinstance(entry.event, Started):
                return entry.time
    return datetime.fromisoformat(run.state.created).timestamp()
