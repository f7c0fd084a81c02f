"""Live display of a workload: which of its nodes run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from testbed.reports.console import Console
from testbed.reports.live import (
    PLAIN_INTERVAL_SECONDS,
    TERMINAL_INTERVAL_SECONDS,
    LiveDisplay,
    Progress,
    clock_text,
)
from testbed.telemetry.entry import Entry
from testbed.telemetry.event_kinds import Exited, Launched, WorkloadEnded

MOST_SHOWN = 8


@dataclass
class WorkloadDisplay(LiveDisplay):
    """A sink that shows the progress of a workload on a console."""

    nodes: Sequence[str] = ()
    _running: dict[str, None] = field(default_factory=dict)
    _ended: int = 0

    @classmethod
    def of_nodes(cls, nodes: Sequence[str]) -> Self:
        """Return a display on the standard output."""
        return cls(Console(), Progress(None, None), nodes=nodes)

    def event(self, entry: Entry) -> None:
        super().event(entry)
        match entry.event:
            case Launched(node):
                self._running[node] = None
            case Exited(node):
                self._running.pop(node, None)
                self._ended += 1
            case WorkloadEnded(reason):
                self.phase(reason)

    def time_passed(self, emulated: float) -> None:
        now = self.clock()
        terminal = self.console.is_terminal
        if now - self._shown < (TERMINAL_INTERVAL_SECONDS if terminal else PLAIN_INTERVAL_SECONDS):
            return
        self._shown = now
        names = ", ".join(list(self._running)[:MOST_SHOWN])
        more = f" and {len(self._running) - MOST_SHOWN} more"
        shown = names + (more if len(self._running) > MOST_SHOWN else "")
        self.show_line(
            f"{clock_text(emulated)}  {len(self._running)} of {len(self.nodes)} nodes running"
            f"{f': {shown}' if shown else ''}"
        )
