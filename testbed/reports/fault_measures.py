"""What a run's record says of its faults, and what of the rest they explain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING

from testbed.events.entry import Entry, only
from testbed.events.kinds import FaultApplied
from testbed.reports.verdict import LATE_FAULT_LIMIT_SECONDS

if TYPE_CHECKING:
    import pandas as pd

HOLDING = ("freeze", "partition", "link", "slow")
"""Faults that make a worker's cycle longer, and can be undone."""


def undisturbed(updates: pd.DataFrame, events: Sequence[Entry]) -> pd.DataFrame:
    """The updates of cycles into which no fault fell that holds a worker up.

    The others say nothing of how fast device and links are: from the first after a fault came to
    the first after its end; for one that joins, the first.
    """
    held = updates["worker"] < 0
    ends: dict[tuple[str, str], float] = {}  # of faults that are gone through backwards
    for event in reversed(only(events, FaultApplied)):
        for node in event.nodes if event.kind in (*HOLDING, "join") else ():
            if not event.begins:
                ends[event.kind, node] = event.actual_seconds
                continue
            own = (updates["node"] == node) & (updates["time_seconds"] > event.planned_seconds)
            if event.kind == "join":  # it was away until then
                ends["join", node] = event.planned_seconds
            after = own & (updates["time_seconds"] > ends.pop((event.kind, node), inf))
            held |= own & ~(after & (after.cumsum() > 1))
    return updates[~held]


def planned_gaps(events: Sequence[Entry], time_scale: float) -> dict[str, float]:
    """The longest (real seconds) that faults let each node stand still, for ``gaps``."""
    since: dict[str, float] = {}
    planned: dict[str, float] = {}
    for event in only(events, FaultApplied):
        for node in event.nodes if event.kind in ("freeze", "crash") else ():
            if event.begins:
                since[node] = event.actual_seconds
            else:
                lasted = (event.actual_seconds - since.pop(node, event.actual_seconds)) / time_scale
                planned[node] = max(lasted, planned.get(node, 0.0))
    return planned | dict.fromkeys(since, inf)


def faults(events: Sequence[Entry]) -> dict[str, int]:
    """How many workers each kind of fault has struck; one that is struck twice counts twice."""
    struck = Counter[str]()
    for event in only(events, FaultApplied):
        struck[event.kind] += len(event.nodes) if event.begins else 0
    return dict(struck)


def late_faults(events: Sequence[Entry], time_scale: float) -> list[tuple[str, float]]:
    """Faults that came, or were undone, too late, and by how many real seconds."""
    late = []
    for event in only(events, FaultApplied):
        if event.passed_over and not event.nodes:
            continue  # nothing was done
        seconds = (event.actual_seconds - event.planned_seconds) / time_scale
        if seconds > LATE_FAULT_LIMIT_SECONDS:
            what = event.kind if event.begins else f"the end of {event.kind}"
            late.append((f"{what} of {', '.join(event.nodes) or 'nobody'}", seconds))
    return late
