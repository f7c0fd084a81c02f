"""Shows a run while it goes on: a live line on a terminal, a plain one now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from rich.live import Live
from rich.text import Text

from testbed.cli.console import Console
from testbed.telemetry.status import Status

PLAIN_INTERVAL_SECONDS = 5.0


@dataclass
class LiveDisplay:
    """An Observer that writes to a console.

    Attributes:
        console: where to.
        clock: monotonic seconds, to space the plain lines.
    """

    console: Console
    clock: Callable[[], float] = time.monotonic
    _live: Live | None = None
    _shown: float = field(default=-PLAIN_INTERVAL_SECONDS)

    def phase(self, text: str) -> None:
        """See Observer."""
        self.close()
        self.console.print(Text(text, style="bold"), soft_wrap=True)

    def notice(self, text: str) -> None:
        """See Observer."""
        self.console.print(Text(text, style="yellow"), soft_wrap=True)

    def status(self, status: Status) -> None:
        """See Observer."""
        text = Text(describe(status))
        if self.console.is_terminal:
            if self._live is None:
                self._live = Live(text, console=self.console, auto_refresh=False, transient=False)
                self._live.start()
            self._live.update(text, refresh=True)
        elif self.clock() - self._shown >= PLAIN_INTERVAL_SECONDS:
            self._shown = self.clock()
            self.console.print(text, soft_wrap=True)

    def close(self) -> None:
        """Leave the last line standing and give the terminal back."""
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
