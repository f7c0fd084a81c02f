"""What users changed by hand while a run was active, which its scenario does not describe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from testbed.reports.table import listed
from testbed.telemetry.entry import Entry
from testbed.telemetry.event_kinds import FaultApplied, LimitsChanged, LinkChanged

MOST_NODES = 3


def interventions(events: Sequence[Entry]) -> dict[str, tuple[str, ...]]:
    """Return what was changed by hand, such as ``links``, and for which nodes."""
    found: dict[str, dict[str, None]] = {}
    for entry in events:
        match entry.event:
            case FaultApplied(kind, True, nodes, place=None, recorded=False):
                found.setdefault(f"fault {kind}", {}).update(dict.fromkeys(nodes))
            case LinkChanged(nodes=nodes, by_hand=True) if nodes:
                found.setdefault("links", {}).update(dict.fromkeys(nodes))
            case LimitsChanged(node):
                found.setdefault("limits of containers", {})[node] = None
    return {what: tuple(nodes) for what, nodes in found.items()}


def describe_interventions(by_hand: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield a warning of the verdict, unless nothing was changed by hand."""
    if by_hand:
        told = ", ".join(f"{what} ({listed(nodes, MOST_NODES)})" for what, nodes in by_hand.items())
        yield f"The run was changed by hand: {told}. Its results are not of its scenario alone."
