"""The verdict on a workload's run: whether the emulation was faithful to its scenario."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from testbed.faults import ChangedLink
from testbed.reports.by_hand import describe_interventions, interventions
from testbed.reports.history import RunHistory, late_faults
from testbed.reports.link_rules import (
    skipped_settings,
    unchecked_links,
    wrong_rates,
    wrong_round_trips,
)
from testbed.reports.measurements import Measurements, followed, left_out
from testbed.reports.verdict import (
    BUSY_LIMIT_RATIO,
    BUSY_SHARE_LIMIT_RATIO,
    LATE_FAULT_LIMIT_SECONDS,
    RULES,
    Verdict,
)
from testbed.reports.workload_record import WorkloadRecord
from testbed.scenario.links import link_spec
from testbed.scenario.workload_links import node_links
from testbed.telemetry.entry import Entry, only
from testbed.telemetry.event_kinds import (
    FaultApplied,
    LinksRead,
    MetricUnread,
    RateMeasured,
    RoundTripMeasured,
)

if TYPE_CHECKING:
    from testbed.scenario.workload_metrics import Metric


def judge_workload(
    run: WorkloadRecord, history: RunHistory, busy: Mapping[str, float | None]
) -> Verdict:
    """Return whether the emulation was faithful: a failed program makes no run valid."""
    events, links = run.entries, only(run.entries, LinksRead)
    rates = only(events, RateMeasured)
    measured = Measurements(
        state=run.state.state,
        alive=run.alive,
        attended=history.attended,
        reason=run.state.reason,
        lost=history.lost(),
        removed=history.removed,
        links=followed(run.links, events),
    )
    differences = [what for event in links for what in event.differences]
    reasons = (
        *RULES["end"](measured),
        *RULES["nodes"](measured),
        *RULES["followed"](measured),
        *(f"A link in the kernel differs from the plan: {one}." for one in differences),
        *wrong_rates(rates, fix=_fix_rate),
        *wrong_round_trips(only(events, RoundTripMeasured), fix="a longer `delay`"),
        *skipped_settings(left_out(run.environment, links)),
        *_late(events),
        *_drops(run),
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
    warnings += _unmet_triggers(run)
    unchecked = tuple(unchecked_links(rates, read_back=bool(links)))
    by_hand = describe_interventions(interventions(events))
    return Verdict(not reasons, reasons, unchecked, (*warnings, *by_hand))


def _fix_rate(link: str, slow: bool) -> str:
    return (
        "If the host was too busy to measure it, run the scenario again; otherwise lower the rate."
    )


def _drops(run: WorkloadRecord) -> Iterator[str]:
    """Yield a reason for each node to which packets were dropped that its link would carry.

    A rate has a queue that may be full, and losses are drops: both are the scenario's.
    """
    links = any(isinstance(one, ChangedLink) for one in run.scenario.faults)
    if links or interventions(run.entries):
        return
    dropped = run.nodes.groupby("node")["dropped_packets"].max().dropna().to_dict()
    for node, link in zip(run.scenario.node_names(), node_links(run.scenario), strict=True):
        down = link_spec(link, address="", mac="", time_scale=1.0).down
        if down.rate is None and not down.loss and (count := dropped.get(node, 0)) > 0:
            yield (
                f"{node}: {count:,} packets to it were dropped, although its link has neither "
                "a rate nor losses `down`: a queue overflowed. Give it the rate that it is to "
                "have, or use fewer nodes."
            )


def _late(events: Sequence[Entry]) -> Iterator[str]:
    for fault, seconds in late_faults(events, 1.0):
        yield (
            f"{fault} was {seconds:.2f} s late ({LATE_FAULT_LIMIT_SECONDS:g} s is allowed). Use "
            "fewer nodes."
        )


def _unmet_triggers(run: WorkloadRecord) -> Iterator[str]:
    """Yield a warning for every fault that waited in vain for a line or a metric."""
    done = {(event.place, event.begins) for event in only(run.entries, FaultApplied)}
    for place, fault in enumerate(run.scenario.faults):
        begun = (place, True) in done
        trigger, verb = (fault.until, "ended") if begun else (fault.at, "began")
        if trigger is not None and trigger.time is None and (place, False) not in done:
            yield f"The {fault.kind} of faults.{place} never {verb}: it waited for {trigger}."


def _silent_metrics(run: WorkloadRecord) -> Iterator[str]:
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


def _unread(run: WorkloadRecord, metric: str, nodes: Collection[str]) -> str:
    """Return what the endpoint of a metric did last, among what is on record."""
    unread = [one for one in only(run.entries, MetricUnread) if one.metric == metric]
    found = [f"{one.node}: {one.reason}" for one in unread if one.node in nodes]
    return f"read ({found[-1] if found else 'the run ended before'})."
