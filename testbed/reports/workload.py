"""The summary and the verdict of a workload's run, from its folder."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from typing import TYPE_CHECKING, Any

from testbed.reports import measures
from testbed.reports.by_hand import describe_interventions, interventions
from testbed.reports.history import RunHistory, late_faults
from testbed.reports.link_rules import skipped_settings, wrong_rates, wrong_round_trips
from testbed.reports.measurements import Measurements
from testbed.reports.record import read_csv
from testbed.reports.verdict import (
    BUSY_LIMIT_RATIO,
    BUSY_SHARE_LIMIT_RATIO,
    LATE_FAULT_LIMIT_SECONDS,
    RULES,
    Verdict,
)
from testbed.telemetry.entry import Entry, only, plain
from testbed.telemetry.event_kinds import (
    BroughtUp,
    Exited,
    LinksRead,
    MetricUnread,
    RateMeasured,
    RoundTripMeasured,
    StateChanged,
    TornDown,
    WorkloadBegun,
    WorkloadEnded,
)
from testbed.telemetry.events import read_events
from testbed.telemetry.files import read_json, write_atomically
from testbed.telemetry.folder import ENDED, FORMAT, RunFolder, RunState
from testbed.telemetry.rows import METRICS, NODES, TRAFFIC

if TYPE_CHECKING:
    import pandas as pd

    from testbed.scenario.workload import Workload
    from testbed.scenario.workload_metrics import Metric

TOTALS = ("up_bytes", "up_packets", "down_bytes", "down_packets", "retransmitted_bytes")


class WorkloadRun:
    """One run of a workload, read from its folder, in any state."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder

    @cached_property
    def scenario(self) -> Workload:
        """The resolved scenario."""
        from testbed.scenario.load_workload import load_workload

        return load_workload(self.folder.scenario)

    @cached_property
    def state(self) -> RunState:
        """State of the run when this was first used."""
        return self.folder.state()

    @cached_property
    def alive(self) -> bool:
        """Whether the run was active when this was first used."""
        return self.state.state not in ENDED and self.folder.alive()

    @cached_property
    def events(self) -> Sequence[Entry]:
        """All events, in order."""
        return read_events(self.folder.events)

    @cached_property
    def nodes(self) -> pd.DataFrame:
        """One row per node and reading, about one per second."""
        return read_csv(self.folder.nodes, NODES)

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """One row per value of a metric that a program has printed or served, in order."""
        return read_csv(self.folder.metrics, METRICS)

    @cached_property
    def traffic(self) -> pd.DataFrame:
        """One row per reading of the host."""
        return read_csv(self.folder.traffic, TRAFFIC)


def write_workload_summary(run: WorkloadRun) -> Mapping[str, Any]:
    """Compute the summary and write it to the run folder, replacing an earlier one."""
    summary: Mapping[str, Any] = plain(summarise_workload(run))
    write_atomically(run.folder.summary, json.dumps(summary, indent=2, allow_nan=False) + "\n")
    return summary


def summarise_workload(run: WorkloadRun) -> dict[str, Any]:
    """Return the summary, as far as there is data; docs/run-folder.md explains its keys."""
    events, history = run.events, RunHistory.of(run.events)
    seconds = _seconds(events)
    busy = measures.busyness(run.traffic, seconds)
    return {
        "format": FORMAT,
        "run": run.folder.name,
        "scenario": run.scenario.name,
        "runtime": run.scenario.runtime.name,
        "workload": {name: one.count for name, one in run.scenario.workload.items()},
        **{key: getattr(run.state, key) for key in ("state", "reason", "started", "ended")},
        "verdict": asdict(_judge(run, history, busy)),
        "real_seconds": seconds,
        "bring_up_seconds": next((one.seconds for one in only(events, BroughtUp)), None),
        "tear_down_seconds": next((one.seconds for one in only(events, TornDown)), None),
        "nodes": _nodes(run),
        "metrics": _metrics(run),
        "faults": dict(history.struck),
        "host": {"busy_ratio": busy, "pressure_ratio": measures.pressure(run.traffic, seconds)},
    }


def _seconds(events: Sequence[Entry]) -> float | None:
    """Return the time from the first start to the end of the workload, or to the last event."""
    if not only(events, WorkloadBegun):
        return None
    ends = [one.elapsed_seconds for one in events if isinstance(one.event, WorkloadEnded)]
    return ends[-1] if ends else events[-1].elapsed_seconds


def _nodes(run: WorkloadRun) -> dict[str, Any]:
    """Return, by node, its program, its last exit status, and its totals at the last reading."""
    statuses = {event.node: event.status for event in only(run.events, Exited)}
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


def _metrics(run: WorkloadRun) -> dict[str, Any]:
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


def _silent_metrics(run: WorkloadRun) -> Iterator[str]:
    """Yield a warning for every metric of which no node of its program has given a value."""
    for name, program in run.scenario.workload.items():
        nodes = program.node_names(name)
        for metric, settings in program.metrics.items():
            rows = run.metrics[run.metrics["metric"] == metric]
            if set(nodes).isdisjoint(rows["node"]):
                how = _unread(run, metric, nodes) if settings.prometheus else _unprinted(settings)
                yield (
                    f"The metric {metric} of {name} was never {how} Compare it with the output: "
                    f"testbed logs {run.folder.name} {nodes[0]}"
                )


def _unprinted(metric: Metric) -> str:
    if metric.regex is not None:
        return f"printed: no line with a number matches {metric.regex!r}."
    return f"printed: no line is a JSON object with a number at {metric.json_key!r}."


def _unread(run: WorkloadRun, metric: str, nodes: Collection[str]) -> str:
    """Return what the endpoint of a metric did last, among what is on record."""
    unread = [one for one in only(run.events, MetricUnread) if one.metric == metric]
    found = [f"{one.node}: {one.reason}" for one in unread if one.node in nodes]
    return f"read ({found[-1] if found else 'the run ended before'})."


def _whole(value: Any) -> int | None:
    import pandas as pd

    return None if value is None or pd.isna(value) else int(value)


def _judge(run: WorkloadRun, history: RunHistory, busy: Mapping[str, float | None]) -> Verdict:
    """Return whether the emulation was faithful: a failed program makes no run valid."""
    events, links = run.events, only(run.events, LinksRead)
    rates = only(events, RateMeasured)
    measured = Measurements(
        state=run.state.state,
        alive=run.alive,
        attended=any(event.state in ENDED for event in only(events, StateChanged)),
        reason=run.state.reason,
        lost=history.lost(),
        removed=history.removed,
    )
    differences = [what for event in links for what in event.differences]
    reasons = (
        *RULES["end"](measured),
        *RULES["nodes"](measured),
        *(f"A link in the kernel differs from the plan: {one}." for one in differences),
        *wrong_rates(rates, fix=_fix_rate),
        *wrong_round_trips(only(events, RoundTripMeasured), fix="a longer `delay`"),
        *skipped_settings(_left_out(run, links)),
        *_late(events),
    )
    share = busy["share_above_limit"]
    warnings = []
    if share is not None and share > BUSY_SHARE_LIMIT_RATIO:
        warnings.append(
            f"The host was more than {BUSY_LIMIT_RATIO:.0%} busy during {share:.2%} of the run: "
            "what the programs compute took longer than on devices of their own. Set `cpu` limits, "
            "or use fewer nodes."
        )
    warnings += _silent_metrics(run)
    unchecked = [] if links else ["the links' qdiscs"]
    unchecked += [
        f"the rate of {one.link}, because the host cannot send that fast"
        for one in rates
        if one.measured_bits_per_second is None
    ]
    by_hand = describe_interventions(interventions(events))
    return Verdict(not reasons, reasons, tuple(unchecked), (*warnings, *by_hand))


def _fix_rate(link: str, slow: bool) -> str:
    return (
        "If the host was too busy to measure it, run the scenario again; otherwise lower the rate."
    )


def _left_out(run: WorkloadRun, links: Sequence[LinksRead]) -> Iterable[str]:
    """Return each setting of a link that the kernel does not support."""
    environment = read_json(run.folder.environment) or {}
    found = [*environment.get("left_out", ()), *(one for link in links for one in link.left_out)]
    return dict.fromkeys(found)


def _late(events: Sequence[Entry]) -> Iterator[str]:
    for fault, seconds in late_faults(events, 1.0):
        yield (
            f"{fault} was {seconds:.2f} s late ({LATE_FAULT_LIMIT_SECONDS:g} s is allowed). Use "
            "fewer nodes."
        )
