"""Live display of an active run: a status line on a terminal, periodic plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TextIO

import numpy as np
from rich.live import Live
from rich.text import Text

from testbed.models.metrics import ACCURACY
from testbed.reports.console import Console
from testbed.reports.history import per_second
from testbed.reports.table import listed
from testbed.scenario.settings import Stop
from testbed.telemetry.entry import Entry
from testbed.telemetry.event import Event
from testbed.telemetry.event_kinds import (
    ClockSet,
    ComputedOneByOne,
    Exited,
    FaultApplied,
    LogFull,
    Phase,
)
from testbed.telemetry.ps_events import Evaluated, Rejected, Restored, Started
from testbed.telemetry.rows import Rows
from testbed.telemetry.sink import Sink
from testbed.telemetry.wall import clock_set
from testbed.values.units import Size

TERMINAL_INTERVAL_SECONDS = 0.2
PLAIN_INTERVAL_SECONDS = 5.0
REAL_WINDOW_SECONDS = 10.0
LEAST_SHARE = 1e-3
"""Fraction of `stop.time` that must have passed before the end is estimated from it within the
first REAL_WINDOW_SECONDS."""


@dataclass(frozen=True)
class Status:
    """Current status of a run."""

    updates: int = 0  # applied so far
    updates_per_second: float = 0.0  # over the last ten seconds or the last round, real time
    metric: str = ACCURACY  # the first metric of the last evaluation
    accuracy: float | None = None  # its value
    loss: float | None = None  # of the last evaluation
    ingress_bytes: int = 0  # payload of all pushes so far
    staleness: float = 0.0  # mean i - j over the last ten seconds
    eta_seconds: float | None = None  # real seconds to the end, if the stop rule determines it
    done_ratio: float | None = None  # progress in [0, 1], else None
    joined: int = 0  # workers that joined so far by a recording
    left: int = 0  # workers that left so far by a recording


@dataclass
class Progress:
    """Accumulates reports of the parameter server into a Status."""

    stop: Stop | None = None  # when the run ends; None for a workload
    _counted: Status = Status()  # without what depends on the time
    _recent: deque[tuple[float, int, float]] = field(default_factory=deque)  # time, updates, sum
    _emulated: deque[tuple[float, float]] = field(default_factory=lambda: deque([(0.0, 0.0)]))
    _passed: float = 0.0  # emulated seconds at the last call

    def add_updates(self, rows: Rows, elapsed: float) -> None:
        """Add rows of the update record, received ``elapsed`` real seconds after the start."""
        updates, ingress = len(rows), int(rows["payload_up_bytes"].sum())
        self._count(
            updates=self._counted.updates + updates,
            ingress_bytes=self._counted.ingress_bytes + ingress,
        )
        self._recent.append((elapsed, len(rows), float(np.sum(rows["staleness"]))))
        _forget(self._recent, elapsed)

    def go_back(self, updates: int) -> None:
        """Reset the number of updates after a restart, which lost the later updates."""
        self._count(updates=updates)

    def add_evaluation(self, metrics: Mapping[str, float | None], loss: float | None) -> None:
        """Store the result of an evaluation."""
        metric, accuracy = next(iter(metrics.items()), (self._counted.metric, None))
        self._count(metric=metric, accuracy=accuracy, loss=loss)

    def add_recorded(self, workers: int, *, join: bool) -> None:
        """Add workers that joined or left according to a recording of their availability."""
        if join:
            self._count(joined=self._counted.joined + workers)
        else:
            self._count(left=self._counted.left + workers)

    def _count(self, **fields: Any) -> None:
        self._counted = replace(self._counted, **fields)

    def status(self, elapsed: float, *, emulated: float) -> Status:
        """Return the status at these real and emulated seconds after the start."""
        _, *recent = self._recent or [(0.0, 0, 0.0)]
        updates = sum(count for _, count, _ in recent)
        times, counts = [at for at, _, _ in self._recent], [count for _, count, _ in self._recent]
        rate = per_second(times, counts, now=elapsed)
        return replace(
            self._counted,
            updates_per_second=rate,
            staleness=sum(total for _, _, total in recent) / max(1, updates),
            eta_seconds=self._seconds_left(elapsed, emulated, rate),
            done_ratio=self.stop.progress(self._counted.updates, emulated) if self.stop else None,
        )

    def _seconds_left(self, elapsed: float, emulated: float, rate: float) -> float | None:
        if self.stop is None:
            return None
        pace = self._emulated_pace(elapsed, emulated)
        if elapsed < REAL_WINDOW_SECONDS and emulated < LEAST_SHARE * (self.stop.time or 0.0):
            pace = 0.0
        updates = self._counted.updates
        return self.stop.seconds_left(updates, emulated, updates_per_second=rate, pace=pace)

    def _emulated_pace(self, elapsed: float, emulated: float) -> float:
        """Return emulated seconds per real second, over the last calls."""
        if emulated > self._passed:
            self._emulated.append((elapsed, emulated - self._passed))
            self._passed = emulated
            _forget(self._emulated, elapsed)
        times, passed = zip(*self._emulated, strict=True)
        return per_second(times, passed, now=elapsed)


def _forget(moments: deque[Any], now: float) -> None:
    """Remove entries older than the window; keep at least two, so that they span a whole round."""
    while len(moments) > 2 and moments[0][0] < now - REAL_WINDOW_SECONDS:
        moments.popleft()


@dataclass
class LiveDisplay(Sink):
    """A sink that shows the progress of a run on a console."""

    console: Console
    progress: Progress  # accumulates the status
    clock: Callable[[], float] = time.monotonic  # monotonic seconds
    _live: Live | None = None
    _began: float = 0.0
    _shown: float = field(default=float("-inf"))

    def event(self, entry: Entry) -> None:
        match entry.event:
            case Phase(text):
                self.phase(text)
            case Started():
                self._began = self.clock()
                self.phase("training")
            case Evaluated(metrics=metrics, loss=loss):
                self.progress.add_evaluation(metrics, loss)
            case Restored(version):
                self.progress.go_back(version)
            case FaultApplied(kind, _, nodes, recorded=True):
                self.progress.add_recorded(len(nodes), join=kind == "join")
        if text := _notice_of(entry.event):
            self.notice(text)

    def updates(self, rows: Rows, *, now: float) -> None:
        if len(rows):
            self.progress.add_updates(rows, self.clock() - self._began)

    def time_passed(self, emulated: float) -> None:
        now = self.clock()
        terminal = self.console.is_terminal
        if now - self._shown >= (TERMINAL_INTERVAL_SECONDS if terminal else PLAIN_INTERVAL_SECONDS):
            self._shown = now
            self.show_line(self.line(emulated))

    def line(self, emulated: float) -> str:
        """Return the status of the run at this many emulated seconds, on one line."""
        return describe(self.progress.status(self.clock() - self._began, emulated=emulated))

    def show_on(self, file: TextIO) -> None:
        self.console.file = file

    def phase(self, text: str) -> None:
        """Show the start of a phase that takes a while."""
        self.close()
        self.console.print(Text(text, style="bold"), soft_wrap=True)

    def notice(self, text: str) -> None:
        """Show a message that the user should read."""
        self.console.print(Text(text, style="yellow"), soft_wrap=True)

    def show_line(self, line: str) -> None:
        """Show a line; on a terminal, in place of the previous one."""
        text = Text(line)
        if not self.console.is_terminal:
            self.console.print(text, soft_wrap=True)
            return
        if self._live is None:
            prints_here = self.console.file is sys.stdout  # else it is a log, and must stay one
            self._live = Live(
                text,
                console=self.console,
                auto_refresh=False,
                redirect_stdout=prints_here,
                redirect_stderr=prints_here,
            )
            self._live.start()
        self._live.update(text, refresh=True)

    def close(self) -> None:
        """Stop the display; the last line remains on the terminal. Idempotent."""
        if self._live is not None:
            self._live.stop()
            self._live = None


def describe(status: Status) -> str:
    """Format a line: updates, rate, accuracy (or loss), ingress, staleness, remaining time."""
    done = "" if status.done_ratio is None else f" ({status.done_ratio:.0%})"
    if status.accuracy is None and status.loss is not None:
        good = f"loss {status.loss:.4g}"
    else:
        name = "accuracy" if status.metric == ACCURACY else status.metric
        good = f"{name} {'-' if status.accuracy is None else f'{status.accuracy:.4f}'}"
    eta = "-" if status.eta_seconds is None else clock_text(status.eta_seconds)
    moved = f"  join {status.joined:,}, leave {status.left:,}"
    return (
        f"{status.updates:,} updates{done}  {rate_text(status.updates_per_second)}/s"
        f"  {good}  ingress {status.ingress_bytes / 1e6:,.2f} MB"
        f"  staleness {status.staleness:.1f}  ETA {eta}"
        f"{moved if status.joined or status.left else ''}"
    )


def rate_text(number: float) -> str:
    """Format a rate, such as 1,250, 4.2 or 0.083."""
    if number >= 10:
        return f"{number:,.0f}"
    return f"{number:.1f}" if number >= 1 else f"{number:.2g}"


def clock_text(seconds: float) -> str:
    """Format seconds as m:ss or h:mm:ss."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _notice_of(event: Event) -> str:
    """Return what to tell about an event; empty for nothing."""
    match event:
        case Rejected(node, reason):
            notice = f"{node or 'an unknown peer'}: rejected: {reason}"
        case LogFull(node, limit):
            dropped = "the rest of its output is dropped, except the end"
            notice = f"{node} prints more than {Size(limit)}: {dropped}"
        case ClockSet(seconds):
            notice = f"{clock_set(seconds)}: the times of the run do not depend on that clock"
        case ComputedOneByOne(reason):
            notice = f"gradients are computed one by one, as vmap is not possible: {reason}"
        case Exited("ps", restarted=True, how=how):
            notice = f"{how}; restarted from its checkpoint"
        case Exited(restarted=True, how=how):
            notice = f"{how}; restarted"
        case Restored(version, _, lost):
            notice = f"resumed from update {version:,}: {lost:,} updates are lost"
        case Exited(ends_run=False, how=how) if how:
            notice = f"{how}; the other nodes continue"
        case FaultApplied(kind, begins, nodes, place=place, recorded=False) if nodes:
            what = kind if begins else f"the end of {kind}"
            why = "by hand" if place is None else "as planned"
            notice = f"{what}, {why}: {listed(nodes)}"
        case _:
            notice = ""
    return notice
