"""What the devices of a live run received of their streams, and what was due to them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from testbed.reports.streams import latest
from testbed.scenario.traces import arrivals, own_copy
from testbed.scenario.transfers import in_flight_seconds, quiet_seconds
from testbed.telemetry.ps_events import Finished, Received
from testbed.telemetry.rows import STREAMS

if TYPE_CHECKING:
    from testbed.reports.history import FaultSpan
    from testbed.reports.record import RunRecord
    from testbed.telemetry.entry import Entry

FEEDERS = ("broker", "producer")
"""Beginnings of the names of nodes that feed streams."""

STOPPING = ("freeze", "crash", "kill", "leave", "join", "partition", "link")
"""Faults after which a stream may be silent."""


def received(
    run: RunRecord, events: Sequence[Entry], faults: Iterable[FaultSpan]
) -> dict[str, tuple[int, int]]:
    """Return the samples that each device received, and those due to it.

    As long as samples arrive, those that have not are under way or buffered. In a silence that no
    fault explains, all that could have arrived before the end of the training are due.
    """
    scenario, found = run.scenario, {}
    if scenario.streams is None or scenario.simulated or not STREAMS.keys() <= {*run.updates}:
        return {}
    laws = arrivals(scenario, partial(own_copy, run.folder.path)) or ()
    under_way, quiet = in_flight_seconds(scenario), quiet_seconds(scenario)
    ends = [_emulated(run, one) for one in events if isinstance(one.event, Finished)]
    stops = [fault for fault in faults if fault.kind in STOPPING]
    for node, (time, report) in _last_reports(run, events).items():
        due = report.received + report.missing - report.removed
        since = time - report.silent_seconds
        if report.silent_seconds > quiet and not _stopped(stops, node, since=since, until=time):
            law = laws[int(node.removeprefix("w"))]
            due = max(due, law.count(min([time, *ends]) - under_way) - report.removed)
        if due:
            found[node] = report.received, due
    return found


def _last_reports(run: RunRecord, events: Sequence[Entry]) -> dict[str, tuple[float, Received]]:
    """Return each device's last report, and when it was made, in emulated time.

    The row of its last update is one, too, except that it does not tell what the broker's
    retention has removed: nothing, or possibly all that is missing.
    """
    assert run.scenario.streams is not None
    kept_seconds, last = run.scenario.streams.kept_seconds, {}
    for _, row in latest(run.updates).iterrows():
        node, time, missing = row["node"], float(row["time_seconds"]), int(row["stream_missing"])
        came = int(row["stream_produced"] - row["stream_duplicates"])
        removed = missing if time > kept_seconds else 0
        last[node] = time, Received(node, came, missing, removed, silent_seconds=0.0)
    for entry in events:
        if isinstance(entry.event, Received):
            time, node = _emulated(run, entry), entry.event.node
            if time >= last.get(node, (0.0,))[0]:
                last[node] = time, entry.event
    return last


def _emulated(run: RunRecord, entry: Entry) -> float:
    return run.scenario.time_scale * (entry.elapsed_seconds or 0.0)


def _stopped(faults: Iterable[FaultSpan], node: str, *, since: float, until: float) -> bool:
    """Whether a fault of a device, or of a node that feeds streams, was active in an interval."""
    return any(
        fault.begin < until and (fault.end is None or fault.end > since)
        for fault in faults
        if fault.node == node or fault.node.startswith(FEEDERS)
    )
