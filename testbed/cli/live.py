"""Shows a run while it goes on: a live line on a terminal, a plain one now and then elsewhere."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from rich.live import Live
from rich.text import Text

from testbed.cli.console import Console
from testbed.events.entry import Entry
from testbed.events.kinds import (
    ClockSet,
    Evaluated,
    Exited,
    FaultApplied,
    LogFull,
    Phase,
    Rejected,
    Restored,
    Started,
)
from testbed.events.rows import Rows
from testbed.events.sink import Sink
from testbed.telemetry.wall import clock_set
from testbed.values.units import Size

TERMINAL_INTERVAL_SECONDS = 0.2
PLAIN_INTERVAL_SECONDS = 5.0
WINDOW_SECONDS = 10.0


@dataclass(frozen=True)
class Status:
    """A glance at a run."""

    updates: int = 0  # applied so far
    updates_per_second: float = 0.0  # over the last ten seconds, real time
    accuracy: float | None = None  # top-1 share of the last evaluation that had one
    loss: float | None = None  # of the last evaluation
    ingress_bytes: int = 0  # payload of all pushes so far
    staleness: float = 0.0  # mean i - j over the last ten seconds
    eta_seconds: float | None = None  # real seconds to the end, where the stop rule says so
    done_ratio: float | None = None  # how far along the run is, in [0, 1], else None


@dataclass
class Progress:
    """Adds up what the parameter server reports into a Status."""

    stop_updates: int | None  # updates after which the run ends, or None
    stop_seconds: float | None  # emulated seconds after which it ends, or None
    _updates: int = 0
    _ingress: int = 0
    _accuracy: float | None = None
    _loss: float | None = None
    _recent: deque[tuple[float, int, float]] = field(default_factory=deque)  # when, updates, sum

    def add_updates(self, rows: Rows, elapsed: float) -> None:
        """New rows of the update record, seen ``elapsed`` real seconds after the start."""
        self._updates += len(rows)
        self._ingress += int(rows["payload_up_bytes"].sum())
        self._recent.append((elapsed, len(rows), float(np.sum(rows["staleness"]))))
        while len(self._recent) > 1 and self._recent[0][0] < elapsed - WINDOW_SECONDS:
            self._recent.popleft()

    def go_back(self, updates: int) -> None:
        """Only so many updates are left: those after them were lost."""
        self._updates = updates

    def add_evaluation(self, top1: float | None, loss: float | None) -> None:
        """An evaluation that the evaluator reported."""
        self._accuracy, self._loss = top1, loss

    def status(self, elapsed: float, *, emulated: float) -> Status:
        """Where the run stands, so many real and emulated seconds after the start."""
        since, *counted = self._recent or [(0.0, 0, 0.0)]
        updates = sum(count for _, count, _ in counted)
        span = elapsed - since[0]
        rate = updates / span if span > 0 else 0.0
        done, eta = self._progress(elapsed, emulated, rate)
        return Status(
            updates=self._updates,
            updates_per_second=rate,
            accuracy=self._accuracy,
            loss=self._loss,
            ingress_bytes=self._ingress,
            staleness=sum(total for _, _, total in counted) / max(1, updates),
            eta_seconds=eta,
            done_ratio=done,
        )

    def _progress(
        self, elapsed: float, emulated: float, rate: float
    ) -> tuple[float | None, float | None]:
        """How far along, and how much longer, by whichever rule ends the run first."""
        shares: list[float] = []
        seconds_to_go: list[float] = []
        if self.stop_updates is not None:
            shares.append(self._updates / self.stop_updates)
            if rate > 0:
                seconds_to_go.append(max(0, self.stop_updates - self._updates) / rate)
        if self.stop_seconds is not None:
            shares.append(share := min(1.0, emulated / self.stop_seconds))
            if share > 0:
                seconds_to_go.append(elapsed * (1 - share) / share)
        return max(shares, default=None), min(seconds_to_go, default=None)


@dataclass
class LiveDisplay(Sink):
    """A sink that writes to a console what somebody who waits wants to know."""

    console: Console
    progress: Progress  # adds up what is shown
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
            case Evaluated(top1=accuracy, loss=loss):
                self.progress.add_evaluation(accuracy, loss)
            case Rejected(node, reason):
                self.notice(f"{node or 'an unknown peer'}: rejected: {reason}")
            case LogFull(node, limit):
                self.notice(f"{node} prints more than {Size(limit)}: the rest is left out")
            case ClockSet(seconds):
                self.notice(f"{clock_set(seconds)}: no moment of the run is by that clock")
            case Exited("ps", restarted=True, how=how):
                self.notice(f"{how}; it is started again from its checkpoint")
            case Exited(restarted=True, how=how):
                self.notice(f"{how}; it is started again")
            case Restored(version, _, lost):
                self.progress.go_back(version)
                self.notice(f"goes on from update {version:,}: {lost:,} updates are lost")
            case Exited(ends_run=False, how=how) if how:
                self.notice(f"{how}; the others go on")
            case FaultApplied(kind, begins, nodes) if nodes:
                what = kind if begins else f"the end of {kind}"
                self.notice(f"{what}, as planned: {', '.join(nodes)}")

    def updates(self, rows: Rows, *, now: float) -> None:
        if len(rows):
            self.progress.add_updates(rows, self.clock() - self._began)

    def time_passed(self, emulated: float) -> None:
        now = self.clock()
        terminal = self.console.is_terminal
        if now - self._shown >= (TERMINAL_INTERVAL_SECONDS if terminal else PLAIN_INTERVAL_SECONDS):
            self._shown = now
            self.status(self.progress.status(now - self._began, emulated=emulated))

    def phase(self, text: str) -> None:
        """Something begins that takes a while."""
        self.close()
        self.console.print(Text(text, style="bold"), soft_wrap=True)

    def notice(self, text: str) -> None:
        """Something that the user should read."""
        self.console.print(Text(text, style="yellow"), soft_wrap=True)

    def status(self, status: Status) -> None:
        """Where the training stands, in the place of what was shown before."""
        text = Text(describe(status))
        if not self.console.is_terminal:
            self.console.print(text, soft_wrap=True)
            return
        if self._live is None:
            self._live = Live(text, console=self.console, auto_refresh=False, transient=False)
            self._live.start()
        self._live.update(text, refresh=True)

    def close(self) -> None:
        """See Sink. The last line stays, and the terminal is given back."""
        if self._live is not None:
            self._live.stop()
            self._live = None


def describe(status: Status) -> str:
    """One line: updates, rate, accuracy or else loss, ingress, staleness, time to go."""
    done = "" if status.done_ratio is None else f" ({status.done_ratio:.0%})"
    if status.accuracy is None and status.loss is not None:
        good = f"loss {status.loss:.4g}"
    else:
        good = f"accuracy {'-' if status.accuracy is None else f'{status.accuracy:.4f}'}"
    eta = "-" if status.eta_seconds is None else clock_text(status.eta_seconds)
    return (
        f"{status.updates:,} updates{done}  {status.updates_per_second:,.0f}/s"
        f"  {good}  ingress {status.ingress_bytes / 1e6:,.2f} MB"
        f"  staleness {status.staleness:.1f}  ETA {eta}"
    )


def clock_text(seconds: float) -> str:
    """Seconds as m:ss or h:mm:ss."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
