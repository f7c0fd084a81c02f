"""Records the events of a run, and passes them to all sinks."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from testbed.telemetry.entry import FROM_PS, Entry
from testbed.telemetry.event import PS, Event
from testbed.telemetry.event_kinds import ClockSet, StateChanged, WorkloadBegun
from testbed.telemetry.events import EventLog
from testbed.telemetry.files import CsvTable, evaluation_row
from testbed.telemetry.folder import RunFolder
from testbed.telemetry.host import HostSample, OtherHost
from testbed.telemetry.parts import PartWriter
from testbed.telemetry.ps_events import Evaluated, Restored, Started
from testbed.telemetry.rows import (
    TRAFFIC,
    HostRow,
    LinkRow,
    MetricRow,
    NodeRow,
    PairRow,
    Reading,
    Rows,
    TrafficRow,
)
from testbed.telemetry.sink import Sink
from testbed.telemetry.wall import WALL
from testbed.values.usage import Usage

OF_THE_PS = tuple(
    name for name in TRAFFIC if not name.startswith("host_") and not name.endswith("_seconds")
)
"""Columns of traffic that a run without a parameter server leaves empty."""

JUMP_SECONDS = 1.0
"""The host's wall clock was set if its offset changes by more than this."""

LATEST_SECONDS = 10.0
"""Maximum delay until the controller reads an event that the parameter server has written."""


@dataclass(frozen=True)
class Clock:
    """The two clocks of a recording, in seconds: since 1970, and monotonic.

    Attributes:
        offset: how far the host's wall clock was set since ``wall`` was derived from it.
    """

    wall: Callable[[], float] = WALL
    steady: Callable[[], float] = time.monotonic
    offset: Callable[[], float] = WALL.offset


class FolderSink(Sink):
    """Appends to a run folder.

    Existing records are continued. Everything is passed to the operating system when a method
    returns, except the last few seconds of updates, which the parameter server's spool also holds.
    """

    def __init__(
        self,
        folder: RunFolder,
        *,
        time_scale: float,
        wall: Callable[[], float] | None = None,
        part_rows: int = 1,  # see PartWriter.least_rows
    ) -> None:
        self._folder = folder
        self._wall = wall  # for the states in run.json; None for the time of the entries
        self._time_scale = time_scale
        self._events = EventLog(folder.events)
        self._evaluations = CsvTable(folder.evaluations)
        self._paths: Mapping[type[Reading], Path] = {
            TrafficRow: folder.traffic,
            LinkRow: folder.links,
            NodeRow: folder.nodes,
            PairRow: folder.pairs,
            HostRow: folder.other_hosts,
            MetricRow: folder.metrics,
        }
        self._readings: dict[type[Reading], CsvTable] = {
            TrafficRow: CsvTable(folder.traffic, TrafficRow._fields)
        }
        self._parts = PartWriter(folder.updates, part_rows)

    def event(self, entry: Entry) -> None:
        """Append an event; also record a new state in ``run.json``, an evaluation in its table."""
        event = entry.event
        if isinstance(event, StateChanged):
            if event.state == "finished":  # by then all updates are in their parts
                self._parts.close()
            reason, exit_code = event.reason, event.exit_code
            now = entry.time if self._wall is None else self._wall()
            self._folder.move(event.state, now=now, reason=reason, exit_code=exit_code)
        self._events.append(entry)
        if isinstance(event, Restored):  # updates after the checkpoint are in no model
            self._parts.cut(event.version)
            self._evaluations.cut("version", event.version)
        if isinstance(event, Evaluated):
            self._evaluations.append(evaluation_row(event, time_scale=self._time_scale))

    def updates(self, rows: Rows, *, now: float) -> None:
        self._parts.add(rows, now=now)

    def readings(self, rows: Sequence[Reading]) -> None:
        """Append rows to the tables of their kinds; all but traffic begin with their first row."""
        for row in rows:
            kind = type(row)
            if kind not in self._readings:
                self._readings[kind] = CsvTable(self._paths[kind], row._fields)
            self._readings[kind].append(row._asdict())

    def commit(self) -> None:
        self._parts.close()

    def close(self) -> None:
        """Close every file, even if the pending updates cannot be written."""
        with ExitStack() as stack:
            for table in (self._evaluations, *self._readings.values()):
                stack.callback(table.close)
            stack.callback(self._events.close)
            self._parts.close()


class Recorder:
    """Adds times to events and passes them to every sink; one per run, in its controller.

    ``time_scale`` is emulated seconds per real second; the clock defaults to the host's.
    """

    def __init__(
        self, sinks: Sequence[Sink], *, time_scale: float, clock: Clock | None = None
    ) -> None:
        self.time_scale = time_scale
        self._sinks = tuple(sinks)
        self._clock = clock or Clock()
        self._start: float | None = None  # steady
        self._offset = self._clock.offset()  # last reported offset of the host's wall clock

    @classmethod
    def into(
        cls,
        folder: RunFolder,
        *,
        time_scale: float,
        sinks: Sequence[Sink] = (),
        clock: Clock | None = None,
    ) -> Self:
        """Create a recorder with the run's folder as its first sink, before the others."""
        first = FolderSink(folder, time_scale=time_scale)
        return cls((first, *sinks), time_scale=time_scale, clock=clock)

    def add(self, sink: Sink) -> None:
        """Add a sink, from now on."""
        self._sinks = (*self._sinks, sink)

    @property
    def elapsed_seconds(self) -> float | None:
        """Real seconds since the training started, or None before."""
        return None if self._start is None else self._clock.steady() - self._start

    def moment(self, elapsed: float) -> float:
        """Convert real seconds since the start of the training to seconds since 1970."""
        return self._clock.wall() - ((self.elapsed_seconds or 0.0) - elapsed)

    def event(self, event: Event) -> None:
        """Record an event that happened now."""
        if isinstance(event, Started | WorkloadBegun):
            self._start = self._clock.steady()
        source = FROM_PS if type(event) in PS.values() else None
        self._tell(Entry(self._clock.wall(), self.elapsed_seconds, event, source))

    def _tell(self, entry: Entry) -> None:
        for sink in self._sinks:
            sink.event(entry)

    def from_ps(self, entry: Entry) -> None:
        """Record an event as the parameter server wrote it."""
        if isinstance(entry.event, Started):
            since = self._clock.wall() - entry.time
            # If the wall clock was set in between, assume that the event happened just now.
            self._start = self._clock.steady() - (since if 0 <= since <= LATEST_SECONDS else 0.0)
        self._tell(replace(entry, source=FROM_PS))

    def updates(self, rows: Rows) -> None:
        """Record new rows of the spool, in order; call it without rows too, to let time pass."""
        now = self._clock.steady()
        for sink in self._sinks:
            sink.updates(rows, now=now)

    def traffic(self, counters: Mapping[str, Any], host: HostSample | None = None) -> None:
        """Record a reading of the kernel's counters, by column (None: no PS), and of the host."""
        elapsed = self.elapsed_seconds
        row = TrafficRow(
            time_seconds=None if elapsed is None else elapsed * self.time_scale,
            wall_seconds=elapsed,
            host_busy_ratio=None if host is None else host.busy_ratio,
            host_available_bytes=None if host is None else host.available_bytes,
            host_pressure_ratio=None if host is None else host.pressure_ratio,
            **counters,
        )
        self.readings([row])

    def host(self, host: HostSample) -> None:
        """Record a reading of the host, in a run without a parameter server."""
        self.traffic(dict.fromkeys(OF_THE_PS), host)

    def other_hosts(self, found: Sequence[OtherHost]) -> None:
        """Record readings of the run's other hosts."""
        elapsed = self.elapsed_seconds
        time_seconds = None if elapsed is None else elapsed * self.time_scale
        rows = [
            HostRow(
                time_seconds,
                elapsed,
                one.name,
                *(one.sample.busy_ratio, one.sample.available_bytes, one.sample.pressure_ratio),
                *(one.clock.seconds, one.clock.error_seconds),
            )
            for one in found
        ]
        self.readings(rows)

    def readings(self, rows: Sequence[Reading]) -> None:
        """Record rows of tables; without rows, nothing."""
        for sink in self._sinks:
            sink.readings(rows)

    def metric(self, node: str, name: str, value: float) -> None:
        """Record a number that a program of a workload has printed or served."""
        self.readings([MetricRow(self.elapsed_seconds or 0.0, node, name, value)])

    def usage(self, usage: Usage) -> None:
        """Record a reading of queues and containers."""
        for sink in self._sinks:
            sink.usage(usage)

    def time_passed(self) -> None:
        """Let the sinks show progress; does nothing before the training."""
        offset = self._clock.offset()
        if abs(offset - self._offset) > JUMP_SECONDS:
            self.event(ClockSet(offset - self._offset))
            self._offset = offset
        elapsed = self.elapsed_seconds
        if elapsed is not None:
            for sink in self._sinks:
                sink.time_passed(elapsed * self.time_scale)

    def commit(self) -> None:
        """Let every sink complete its files."""
        for sink in self._sinks:
            sink.commit()

    def resume(self, start: float) -> None:
        """Continue a training that started at ``start`` on the steady clock."""
        self._start = start

    def close(self) -> None:
        """Close every sink, even if one of them fails. Idempotent."""
        with ExitStack() as stack:
            for sink in reversed(self._sinks):
                stack.callback(sink.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        # After a failure the folder may reject writes; the first error is reported.
        with suppress(OSError) if error is not None else nullcontext():
            self.close()
