"""Measures of a run's faults, and of what they explain in its other measures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from typing import TYPE_CHECKING

from testbed.reports.history import FaultSpan
from testbed.reports.verdict import LATE_FAULT_LIMIT_SECONDS
from testbed.telemetry.entry import Entry, only
from testbed.telemetry.event_kinds import FaultApplied

if TYPE_CHECKING:
    import pandas as pd

HOLDING = ("freeze", "partition", "link", "slow")
"""Faults that lengthen a worker's cycle, and can be undone."""


def undisturbed(updates: pd.DataFrame, events: Sequence[Entry]) -> pd.DataFrame:
    """Return the updates of cycles that no fault has delayed.

    The others say nothing about the speed of device and links: from the first update after a fault
    begins to the first after its end; for a worker that joins, its first update.
    """
    held = updates["worker"] < 0
    ends: dict[tuple[str, str], float] = {}  # ends of faults: the loop runs backwards
    for event in reversed(only(events, FaultApplied)):
        for node in event.nodes if event.kind in (*HOLDING, "join") else ():
            if not event.begins:
                ends[event.kind, node] = event.actual_seconds
                continue
            own = (updates["node"] == node) & (updates["time_seconds"] > event.planned_seconds)
            if event.kind == "join":  # it was absent until then
                ends["join", node] = event.planned_seconds
            after = own & (updates["time_seconds"] > ends.pop((event.kind, node), inf))
            held |= own & ~(after & (after.cumsum() > 1))
    return updates[~held]


def planned_gaps(faults: Iterable[FaultSpan], time_scale: float) -> dict[str, float]:
    """Return the longest stop (real seconds) that faults planned for each node, for ``gaps``."""
    planned: dict[str, float] = {}
    for fault in faults:
        if fault.kind in ("freeze", "crash"):
            lasted = inf if fault.end is None else (fault.end - fault.begin) / time_scale
            planned[fault.node] = max(lasted, planned.get(fault.node, 0.0))
    return planned


def late_faults(events: Sequence[Entry], time_scale: float) -> list[tuple[str, float]]:
    """Return the faults that began, or were undone, too late, and by how many real seconds."""
    late = []
    for event in only(events, FaultApplied):
        if event.passed_over and not event.nodes:
            continue  # nothing was done
        seconds = (event.actual_seconds - event.planned_seconds) / time_scale
        if seconds > LATE_FAULT_LIMIT_SECONDS:
            what = event.kind if event.begins else f"the end of {event.kind}"
            late.append((f"{what} of {', '.join(event.nodes) or 'no node'}", seconds))
    return late
