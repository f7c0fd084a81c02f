"""The verdict's warning of what users changed by hand."""

from __future__ import annotations

from testbed.reports.by_hand import describe_interventions, interventions
from testbed.telemetry.entry import Entry
from testbed.telemetry.event import Event
from testbed.telemetry.event_kinds import FaultApplied, LimitsChanged, LinkChanged


def link(action: str, *nodes: str, by_hand: bool) -> LinkChanged:
    return LinkChanged(action, nodes, None, None, 0.0, 0.0, by_hand=by_hand)


def found(*events: Event) -> dict[str, tuple[str, ...]]:
    return interventions([Entry(0.0, 0.0, event) for event in events])


def test_what_users_did_is_told_apart_from_scenario_and_traces() -> None:
    assert found(
        FaultApplied("freeze", True, ("w0", "w1"), 1.0, 1.0),
        FaultApplied("freeze", False, ("w0",), 2.0, 2.0),
        FaultApplied("freeze", True, ("w1",), 3.0, 3.0),
        FaultApplied("slow", True, ("w5",), 1.0, 1.0, place=0),
        FaultApplied("leave", True, ("w6",), 1.0, 1.0, recorded=True),
        link("set", "w2", by_hand=True),
        link("set", "w3", by_hand=False),
        link("reset", by_hand=True),
        link("expired", "w2", by_hand=False),
        LimitsChanged("w4", ("cpu.shares: 1024 -> 512",)),
    ) == {"fault freeze": ("w0", "w1"), "links": ("w2",), "limits of containers": ("w4",)}


def test_a_run_without_interventions_has_no_warning() -> None:
    assert found() == {}
    assert list(describe_interventions({})) == []


def test_the_warning_names_three_nodes_of_each_kind() -> None:
    nodes = tuple(f"w{index}" for index in range(5))
    assert list(describe_interventions({"links": nodes, "fault slow": ("w9",)})) == [
        "The run was changed by hand: links (w0, w1, w2 and 2 more), fault slow (w9). "
        "Its results are not of its scenario alone."
    ]
