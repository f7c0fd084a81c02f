"""Live display of a workload: which of its nodes run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from testbed.reports.console import Console
from testbed.reports.live import LiveDisplay, Progress, clock_text
from testbed.reports.table import listed
from testbed.scenario.schema import Scenario
from testbed.scenario.workload import Workload
from testbed.telemetry.entry import Entry
from testbed.telemetry.event_kinds import Exited, Launched, WorkloadEnded

MOST_SHOWN = 8


@dataclass
class WorkloadDisplay(LiveDisplay):
    """A sink that shows the progress of a workload on a console."""

    nodes: Sequence[str] = ()
    _running: dict[str, None] = field(default_factory=dict)

    def event(self, entry: Entry) -> None:
        super().event(entry)
        match entry.event:
            case Launched(node):
                self._running[node] = None
            case Exited(node):
                self._running.pop(node, None)
            case WorkloadEnded(reason):
                self.phase(reason)

    def line(self, emulated: float) -> str:
        shown = listed(list(self._running), MOST_SHOWN)
        return (
            f"{clock_text(emulated)}  {len(self._running)} of {len(self.nodes)} nodes running"
            f"{f': {shown}' if shown else ''}"
        )


def display_of(scenario: Scenario | Workload) -> LiveDisplay:
    """Return a display on the standard output for a run of this scenario."""
    if isinstance(scenario, Workload):
        return WorkloadDisplay(Console(), Progress(), nodes=scenario.node_names())
    return LiveDisplay(Console(), Progress(scenario.stop))
