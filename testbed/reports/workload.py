"""A workload's run in Python, and its summary; ``testbed.WorkloadRun`` is this module's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import chain
from typing import Any

from testbed.reports import measures
from testbed.reports.history import RunHistory
from testbed.reports.measurements import followed
from testbed.reports.workload_record import WorkloadRecord
from testbed.reports.workload_verdict import judge_workload
from testbed.telemetry.entry import Entry, only, plain
from testbed.telemetry.event_kinds import BroughtUp, Exited, TornDown, WorkloadBegun, WorkloadEnded
from testbed.telemetry.folder import FORMAT

TOTALS = ("up_bytes", "up_packets", "down_bytes", "down_packets", "retransmitted_bytes")


class WorkloadRun(WorkloadRecord):
    """One run of a workload, read from its folder, in any state.

        run = testbed.WorkloadRun("ddp-1")
        run.metrics.pivot(index="time_seconds", columns="node", values="value").plot()
        run.nodes.groupby("node")["up_bytes"].max()

    Arguments and errors are those of ``testbed.Run``, which opens a training.
    """

    def summarise(self) -> Mapping[str, Any]:
        """Compute the summary."""
        summary: Mapping[str, Any] = plain(summarise_workload(self))
        return summary


def summarise_workload(run: WorkloadRecord) -> dict[str, Any]:
    """Return the summary, as far as there is data; docs/run-folder.md explains its keys."""
    events, history = run.entries, RunHistory.of(run.entries)
    seconds = _seconds(events)
    busy, links = measures.busyness(run.traffic, seconds), followed(run.links, events)
    return {
        "format": FORMAT,
        "run": run.folder.name,
        "scenario": run.scenario.name,
        "runtime": run.scenario.runtime.name,
        "workload": {name: one.count for name, one in run.scenario.workload.items()},
        **{key: getattr(run.state, key) for key in ("state", "reason", "started", "ended")},
        "verdict": asdict(judge_workload(run, history, busy)),
        "real_seconds": seconds,
        "bring_up_seconds": next((one.seconds for one in only(events, BroughtUp)), None),
        "tear_down_seconds": next((one.seconds for one in only(events, TornDown)), None),
        "nodes": _nodes(run),
        "pairs": _pairs(run),
        "metrics": _metrics(run),
        "faults": dict(history.struck),
        "links": None if links is None else asdict(links),
        "host": {"busy_ratio": busy, "pressure_ratio": measures.pressure(run.traffic, seconds)},
    }


def _seconds(events: Sequence[Entry]) -> float | None:
    """Return the time from the first start to the end of the workload, or to the last event."""
    if not only(events, WorkloadBegun):
        return None
    ends = [one.elapsed_seconds for one in events if isinstance(one.event, WorkloadEnded)]
    return ends[-1] if ends else events[-1].elapsed_seconds


def _nodes(run: WorkloadRecord) -> dict[str, Any]:
    """Return, by node, its program, its last exit status, and its totals at the last reading."""
    statuses = {event.node: event.status for event in only(run.entries, Exited)}
    last = run.nodes.groupby("node").last()
    peak = run.nodes.groupby("node")["memory_bytes"].max()
    found = {}
    for program, settings in run.scenario.workload.items():
        for name in settings.node_names(program):
            found[name] = {
                "program": program,
                "exit_status": statuses.get(name),
                **{key: _whole(last[key].get(name)) for key in (*TOTALS, "dropped_packets")},
                "cpu_seconds": measures.number(last["cpu_seconds"].get(name, float("nan"))),
                "memory_bytes_max": _whole(peak.get(name)),
            }
    return found


def _pairs(run: WorkloadRecord) -> dict[str, Any]:
    """Return, by node and peer, the totals at the last reading, and the last round trip."""
    found: dict[str, Any] = {}
    columns = ("sent_bytes", "received_bytes", "retransmitted_bytes", "frame_bytes", "packets")
    for row in chain.from_iterable(part.itertuples() for part in run.last_pairs()):
        totals = {name: _whole(getattr(row, name)) for name in columns}
        trip = measures.number(row.round_trip_seconds)
        found.setdefault(str(row.node), {})[str(row.peer)] = {**totals, "round_trip_seconds": trip}
    return found


def _metrics(run: WorkloadRecord) -> dict[str, Any]:
    """Return, by metric, its number of values, and the best and the last of them."""
    found: dict[str, Any] = {}
    for program in run.scenario.workload.values():
        for name, metric in program.metrics.items():
            rows = run.metrics[run.metrics["metric"] == name]
            best = None
            if len(rows):
                by_value = rows.sort_values("value", ascending=metric.better == "lower")
                best = by_value.iloc[0][["value", "node", "time_seconds"]].to_dict()
            last = float(rows["value"].iloc[-1]) if len(rows) else None
            found[name] = {"count": len(rows), "best": best, "last": last}
    return found


def _whole(value: Any) -> int | None:
    import pandas as pd

    return None if value is None or pd.isna(value) else int(value)
