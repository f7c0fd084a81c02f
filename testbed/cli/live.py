"""Shows a run while it goes on: a live line on a terminal, a plain one now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from rich.live import Live
from rich.text import Text

from testbed.cli.console import Console
from testbed.events.entry import Entry
from testbed.events.kinds import Evaluated, Exited, Phase, Rejected, Started
from testbed.events.rows import Rows
from testbed.events.sink import Sink
from testbed.telemetry.status import Progress, Status

TERMINAL_INTERVAL_SECONDS = 0.2
PLAIN_INTERVAL_SECONDS = 5.0


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
        """See Sink."""
        match entry.event:
            case Phase(text):
                self.phase(text)
            case Started():
                self._began = self.clock()
                self.phase("training")
            case Evaluated(top1=accuracy):
                self.progress.add_evaluation(accuracy)
            case Rejected(node, reason):
                self.notice(f"{node or 'an unknown peer'}: rejected: {reason}")
            case Exited(ends_run=False, how=how) if how:
                self.notice(f"{how}; the others go on")

    def updates(self, rows: Rows, *, now: float) -> None:
        """See Sink."""
        if len(rows):
            self.progress.add_updates(rows, self.clock() - self._began)

    def time_passed(self, emulated: float) -> None:
        """See Sink."""
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
    """One line: updates, rate, accuracy, ingress, staleness, time to go."""
    done = "" if status.done_ratio is None else f" ({status.done_ratio:.0%})"
    accuracy = "-" if status.accuracy is None else f"{status.accuracy:.4f}"
    eta = "-" if status.eta_seconds is None else clock_text(status.eta_seconds)
    return (
        f"{status.updates:,} updates{done}  {status.updates_per_second:,.0f}/s"
        f"  accuracy {accuracy}  ingress {status.ingress_bytes / 1e6:,.2f} MB"
        f"  staleness {status.staleness:.1f}  ETA {eta}"
    )


def clock_text(seconds: float) -> str:
    """Seconds as m:ss or h:mm:ss."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
