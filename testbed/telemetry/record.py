"""Who writes down what happens in a run, and who passes it on to everybody that wants to know."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Self

from testbed.events.entry import FROM_PS, Entry
from testbed.events.kinds import ClockSet, Evaluated, Event, Restored, Started, StateChanged
from testbed.events.names import PS
from testbed.events.rows import EVALUATIONS, LINKS, TRAFFIC, LinkRow, Rows, TrafficRow
from testbed.events.sink import Sink
from testbed.events.usage import Usage
from testbed.telemetry.events import EventLog
from testbed.telemetry.folder import RunFolder
from testbed.telemetry.host import HostSample
from testbed.telemetry.parts import PartWriter
from testbed.telemetry.tables import CsvTable, evaluation_row
from testbed.telemetry.wall import WALL

JUMP_SECONDS = 1.0
"""The host's wall clock was set if it is suddenly further off than that."""

LATEST_SECONDS = 10.0
"""The controller reads an event of the parameter server's at most so long after it was written."""


@dataclass(frozen=True)
class Clock:
    """The two clocks of a recording: since 1970, and one that is never set back; in seconds.

    Attributes:
        offset: how far the host's wall clock has been set since ``wall`` was derived from it.
    """

    wall: Callable[[], float] = WALL
    steady: Callable[[], float] = time.monotonic
    offset: Callable[[], float] = WALL.offset


class FolderSink(Sink):
    """Appends to a run folder.

    What the folder holds already is continued. Everything is on its way to the disk when a method
    returns, except the last few seconds of updates, which the parameter server's spool holds too.
    """

    def __init__(
        self, folder: RunFolder, *, time_scale: float, wall: Callable[[], float] | None = None
    ) -> None:
        self._folder = folder
        self._wall = wall  # of the states in run.json; None for that of the entries
        self._time_scale = time_scale
        self._events = EventLog(folder.events)
        self._evaluations = CsvTable(folder.evaluations, tuple(EVALUATIONS))
        self._traffic = CsvTable(folder.traffic, tuple(TRAFFIC))
        self._links: CsvTable | None = None
        self._parts = PartWriter(folder.updates)

    def event(self, entry: Entry) -> None:
        """See Sink. A new state stands in ``run.json`` too, an evaluation in its table."""
        event = entry.event
        if isinstance(event, StateChanged):
            if event.state == "finished":  # a run that says so has all its updates in their place
                self._parts.close()
            reason, exit_code = event.reason, event.exit_code
            now = entry.time if self._wall is None else self._wall()
            self._folder.move(event.state, now=now, reason=reason, exit_code=exit_code)
        self._events.append(entry)
        if isinstance(event, Restored):  # what came after the checkpoint is in no model any more
            self._parts.cut(event.version)
            self._evaluations.cut("version", event.version)
        if isinstance(event, Evaluated):
            self._evaluations.append(evaluation_row(event, time_scale=self._time_scale))

    def updates(self, rows: Rows, *, now: float) -> None:
        self._parts.add(rows, now=now)

    def traffic(self, row: TrafficRow) -> None:
        self._traffic.append(row._asdict())

    def links(self, rows: Sequence[LinkRow]) -> None:
        """See Sink. Runs without such links have no table of them."""
        if self._links is None:
            self._links = CsvTable(self._folder.links, tuple(LINKS))
        for row in rows:
            self._links.append(row._asdict())

    def commit(self) -> None:
        self._parts.close()

    def close(self) -> None:
        """See Sink. Every file is closed, also where the pending updates cannot be written."""
        links = nullcontext() if self._links is None else closing(self._links)
        with links, closing(self._traffic), closing(self._evaluations), closing(self._events):
            self._parts.close()


class Recorder:
    """Says when things happened, and tells every sink; the one process that controls a run has one.

    ``time_scale`` is emulated seconds per real second; the clock is the host's by default.
    """

    def __init__(
        self, sinks: Sequence[Sink], *, time_scale: float, clock: Clock | None = None
    ) -> None:
        self.time_scale = time_scale
        self._sinks = tuple(sinks)
        self._clock = clock or Clock()
        self._start: float | None = None  # steady
        self._offset = self._clock.offset()  # of the host's wall clock, as far as it was told

    @classmethod
    def into(
        cls,
        folder: RunFolder,
        *,
        time_scale: float,
        sinks: Sequence[Sink] = (),
        clock: Clock | None = None,
    ) -> Self:
        """One that tells a run's folder first, and then the others."""
        first = FolderSink(folder, time_scale=time_scale)
        return cls((first, *sinks), time_scale=time_scale, clock=clock)

    def add(self, sink: Sink) -> None:
        """Tell one more, from now on."""
        self._sinks = (*self._sinks, sink)

    @property
    def elapsed_seconds(self) -> float | None:
        """Real seconds since the training started, or None before."""
        return None if self._start is None else self._clock.steady() - self._start

    def moment(self, elapsed: float) -> float:
        """When so many real seconds had passed since the training started; seconds since 1970."""
        return self._clock.wall() - ((self.elapsed_seconds or 0.0) - elapsed)

    def event(self, event: Event) -> None:
        """Something happened just now."""
        if isinstance(event, Started):
            self._start = self._clock.steady()
        source = FROM_PS if type(event) in PS.values() else None
        self._tell(Entry(self._clock.wall(), self.elapsed_seconds, event, source))

    def _tell(self, entry: Entry) -> None:
        for sink in self._sinks:
            sink.event(entry)

    def from_ps(self, entry: Entry) -> None:
        """An event of the parameter server's, as it wrote it."""
        if isinstance(entry.event, Started):
            since = self._clock.wall() - entry.time
            # A wall clock that was set meanwhile says nothing; then the event is from just now.
            self._start = self._clock.steady() - (since if 0 <= since <= LATEST_SECONDS else 0.0)
        self._tell(replace(entry, source=FROM_PS))

    def updates(self, rows: Rows) -> None:
        """New rows of the spool, in its order; call it with none now and then, to let time pass."""
        now = self._clock.steady()
        for sink in self._sinks:
            sink.updates(rows, now=now)

    def traffic(self, counters: Mapping[str, int], host: HostSample | None = None) -> None:
        """A reading of the kernel's counters, by their columns, and of the host."""
        elapsed = self.elapsed_seconds
        row = TrafficRow(
            time_seconds=None if elapsed is None else elapsed * self.time_scale,
            wall_seconds=elapsed,
            host_busy_ratio=None if host is None else host.busy_ratio,
            host_available_bytes=None if host is None else host.available_bytes,
            host_pressure_ratio=None if host is None else host.pressure_ratio,
            **counters,
        )
        for sink in self._sinks:
            sink.traffic(row)

    def links(self, rows: Sequence[LinkRow]) -> None:
        """What links carried that follow recordings was read."""
        for sink in self._sinks:
            sink.links(rows)

    def usage(self, usage: Usage) -> None:
        """Queues and containers were read."""
        for sink in self._sinks:
            sink.usage(usage)

    def time_passed(self) -> None:
        """A moment for the sinks to show how it goes; before the training there is nothing."""
        offset = self._clock.offset()
        if abs(offset - self._offset) > JUMP_SECONDS:
            self.event(ClockSet(offset - self._offset))
            self._offset = offset
        elapsed = self.elapsed_seconds
        if elapsed is not None:
            for sink in self._sinks:
                sink.time_passed(elapsed * self.time_scale)

    def commit(self) -> None:
        """Let every sink put in its place what it was told so far."""
        for sink in self._sinks:
            sink.commit()

    def resume(self, start: float) -> None:
        """The training has started before, at ``start`` on the steady clock."""
        self._start = start

    def close(self) -> None:
        """Close every sink, also where one of them cannot; doing it twice is harmless."""
        with ExitStack() as stack:
            for sink in reversed(self._sinks):
                stack.callback(sink.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        # After a failure the folder may take nothing any more; what went wrong first is told.
        with suppress(OSError) if error is not None else nullcontext():
            self.close()
