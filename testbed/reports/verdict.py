"""The verdict on a run: whether the emulation was faithful, with the violated rules as reasons.

The rules check effects on the run: nodes that exited, delays, rates and losses of the links. A busy
host alone does not violate a rule. Every reason says how to fix it. docs/trust.md lists the limits
with the rationale for their values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from testbed.algorithms.frame.stop import DIVERGED, NO_WORKER, NO_WORKER_LEFT
from testbed.reports.by_hand import describe_interventions
from testbed.reports.link_rules import (
    STANDARD_ERRORS,
    skipped_settings,
    unchecked_links,
    wrong_rates,
    wrong_round_trips,
)
from testbed.reports.measurements import LATE_LINK_LIMIT_SECONDS, Flow, Measurements
from testbed.reports.rules import NONE_AWAITED, clocks, first, producers, received
from testbed.telemetry.wall import clock_set

BUSY_LIMIT_RATIO = 0.9
BUSY_SHARE_LIMIT_RATIO = 0.1
PRESSURE_LIMIT_RATIO = 0.5
GAP_LIMIT_SECONDS = 1.5
LATE_LIMIT_RATIO = 0.05
PACE_LIMIT_RATIO = 0.05
PACE_LIMIT_SECONDS = 0.002
UNEXPLAINED_LIMIT_RATIO = 0.2
RETRANSMITTED_LIMIT_RATIO = 0.05
RECONCILIATION_LIMIT_RATIO = 0.01
MOST_SENDERS = 3
LATE_FAULT_LIMIT_SECONDS = 1.0
LATE_LINKS_LIMIT_RATIO = 0.01


@dataclass(frozen=True)
class Verdict:
    """Whether the run can be trusted."""

    valid: bool  # no rule is violated
    reasons: tuple[str, ...]  # violated rules, with the measured and the allowed value
    unchecked: tuple[str, ...]  # rules without measurements
    warnings: tuple[str, ...] = ()  # notes that do not invalidate the run

    @classmethod
    def of(cls, summary: Mapping[str, Any]) -> Verdict:
        """Return the verdict in a summary."""
        verdict = summary["verdict"]
        told = (tuple(verdict[name]) for name in ("reasons", "unchecked", "warnings"))
        return cls(verdict["valid"], *told)


def judge(measured: Measurements) -> Verdict:
    """Apply all rules."""
    reasons = tuple(sentence for rule in RULES.values() for sentence in rule(measured))
    busy = () if tuple(_pressure(measured)) else _busy(measured)
    by_hand = describe_interventions(measured.by_hand)
    busy = (*busy, *_busy_hosts(measured))
    warnings = (*_diverged(measured), *_uneven(measured), *busy, *_clock(measured), *by_hand)
    return Verdict(not reasons, reasons, tuple(_unchecked(measured)), warnings)


def _diverged(measured: Measurements) -> Iterator[str]:
    """A training that diverged is a result, but seldom one that was wanted."""
    if measured.reason.startswith(DIVERGED) and measured.updates != 0:
        yield (
            f"The training {measured.reason}. From then on its model is of no use: set a smaller "
            "learning rate, unless this is what you study."
        )


def _uneven(measured: Measurements) -> Iterator[str]:
    """On a real device, the time of a step grows with its batch."""
    for name, (least, most) in measured.uneven_batches.items():
        yield (
            f"The batches of {name} had {least:,.0f} to {most:,.0f} samples, but all steps took "
            f"the same time. Set workers.classes.{name}.speed to {{base: DURATION, each: "
            "DURATION}, the time of a step and the additional time per sample."
        )


def _clock(measured: Measurements) -> Iterator[str]:
    told = [
        f"{clock_set(seconds)} during the run. Recorded times ignore the change, and no "
        "measurement depends on the wall clock."
        for seconds in measured.clock_set_seconds
    ]
    yield from first(told, "The wall clock was set {} more times.")


def _end(measured: Measurements) -> Iterator[str]:
    why = f": {measured.reason.rstrip('.')}" if measured.reason else ""
    if measured.state in ("failed", "interrupted"):
        how = "failed" if measured.state == "failed" else "was interrupted"
        yield f"The run {how}{why}. Fix the cause, and run the scenario again."
    elif measured.alive:
        yield "The run is still active."
    elif measured.state != "finished":
        yield (
            f"The run did not finish: its controller died in state {measured.state}. Run the "
            "scenario again."
        )
    elif not measured.attended:
        yield (
            "The run finished after its controller had died, so that later events of nodes, links "
            "and the host were not recorded. Run the scenario again."
        )
    elif measured.updates == 0:
        diverged = measured.reason.startswith(DIVERGED)
        fix = "Set a later `stop` or a smaller learning rate."
        yield f"No update was applied{why}. {FIX_DIVERGED_AT_ONCE if diverged else fix}"
    if measured.stalled:
        alone, none = NO_WORKER_LEFT in measured.stalled, measured.stalled.endswith(NO_WORKER)
        fix = _ALL_GONE if alone else NONE_AWAITED if none else _SOME_AWAITED
        yield f"The training {measured.stalled}. {fix}"


FIX_DIVERGED_AT_ONCE = (
    "If the model, its data or the algorithm is your own code, try `testbed check FILE`; otherwise "
    "set a smaller learning rate."
)
KEEP_CONTAINERS = "Run the scenario again, and do not stop or remove its containers."
_ALL_GONE = "Let fewer workers crash or leave, or set an earlier `stop`."
_SOME_AWAITED = (
    "This algorithm waits for workers that neither push nor leave; set `ps.dead_after` to remove "
    "such workers."
)


def _nodes(measured: Measurements) -> Iterator[str]:
    rejected = [f"A push of {node} was rejected: {why}." for node, why in measured.rejected]
    yield from first(rejected, "Pushes of {} other nodes were rejected, too.")
    lost = [
        f"{node} was lost before the end: {how}. "
        + (KEEP_CONTAINERS if node in measured.removed else f"Check its output: logs/{node}.log.")
        for node, how in measured.lost
    ]
    yield from first(lost, "{} other nodes were lost, too.")
    late = [
        f"{fault} was {late:.2f} s late in real time ({LATE_FAULT_LIMIT_SECONDS:g} s is allowed). "
        "Use fewer workers."
        for fault, late in measured.late_faults
    ]
    yield from first(late, "{} other faults were late, too.")


def _followed(measured: Measurements) -> Iterator[str]:
    """Yield a reason if links with traces were changed too late."""
    if (links := measured.links) is None or links.late_changes_ratio is None:
        return
    latest = links.latest_change_seconds or 0.0
    if links.late_changes_ratio > LATE_LINKS_LIMIT_RATIO or latest > LATE_FAULT_LIMIT_SECONDS:
        yield (
            f"{links.late_changes_ratio:.2%} of the link changes by traces were more than "
            f"{LATE_LINK_LIMIT_SECONDS * 1e3:g} ms late ({LATE_LINKS_LIMIT_RATIO:.0%} is "
            f"allowed), the latest {latest:.2f} s ({LATE_FAULT_LIMIT_SECONDS:g} s is allowed). "
            "Use traces with fewer changes, or fewer workers with traces."
        )


def _gaps(measured: Measurements) -> Iterator[str]:
    fix = (
        "If a user or another program suspended processes of the run, run it again without that; "
        "if the host lacked CPU time or memory, use fewer workers or a less busy host."
    )
    found = dict(measured.gaps or {})
    allowed = f"without a planned fault ({GAP_LIMIT_SECONDS:g} s is allowed)"
    server = found.pop("ps", 0.0)
    if server > GAP_LIMIT_SECONDS:
        yield f"The parameter server did not execute for {server:.1f} s {allowed}. {fix}"
    still = sorted(
        ((seconds, node) for node, seconds in found.items() if seconds > GAP_LIMIT_SECONDS),
        reverse=True,
    )
    if len(still) == 1:
        ((seconds, node),) = still
        yield f"{node} did not execute for {seconds:.1f} s {allowed}. {fix}"
    elif still:
        seconds, node = still[0]
        yield (
            f"{len(still)} workers did not execute for up to {seconds:.1f} s ({node}) {allowed}. "
            f"{fix}"
        )


def _links(measured: Measurements) -> Iterator[str]:
    different = [
        f"A link in the kernel differs from the plan: {difference}. If another program changes "
        "qdiscs, stop that program during the run; otherwise set the field to a value that the "
        "kernel supports."
        for difference in measured.differences or ()
    ]
    yield from first(different, "There are {} more such differences.")
    yield from wrong_rates(measured.rates, fix=_fix_rate)
    longer = "a longer `delay`, or lower time_scale, which lengthens delays in real time"
    yield from wrong_round_trips(measured.round_trips, fix=longer)
    yield from skipped_settings(measured.left_out)


def _fix_rate(link: str, slow: bool) -> str:
    *_, name, direction = link.split()
    field = f"workers.classes.{name}.link.{direction}.rate"
    cause = "" if slow else f"{field} is too high for the kernel's timers: "
    cure = f"{cause}lower {field}, or time_scale, which multiplies rates"
    return f"If the host was too busy to measure it, run the scenario again; otherwise {cure}."


def _lateness(measured: Measurements) -> Iterator[str]:
    ratio = measured.late_steps_ratio
    if ratio is not None and ratio > LATE_LIMIT_RATIO:
        slower = f"workers.classes.{measured.latest_class or 'NAME'}.speed"
        yield (
            f"{ratio:.2%} of the training steps took longer than the step time that the `speed` of "
            f"their class sets ({LATE_LIMIT_RATIO:.0%} is allowed). Set a longer time in {slower}, "
            "lower time_scale, or use fewer workers."
        )
    ratio = measured.late_requests_ratio
    if ratio is not None and ratio > LATE_LIMIT_RATIO:
        yield (
            f"For {ratio:.2%} of the requests, the parameter server took longer than the service "
            f"time `ps.service` ({LATE_LIMIT_RATIO:.0%} is allowed). Set a longer ps.service, "
            "lower time_scale, or use fewer workers."
        )
    yield from _slower(measured)


def _slower(measured: Measurements) -> Iterator[str]:
    """Yield reasons if steps and think times took longer than the scenario says."""
    fix = "Lower time_scale, set a longer {}, or use fewer workers."
    for what, pace, cure in (
        ("Steps and think times", measured.pace, "`speed` of the classes or workers.think.mean"),
        ("Think times", measured.slept, "workers.think.mean"),
    ):
        if pace is None or not measured.paced:
            continue
        beyond = pace.measured_seconds - pace.asked_seconds
        limit = max(PACE_LIMIT_RATIO * pace.asked_seconds, PACE_LIMIT_SECONDS)
        if beyond > limit + STANDARD_ERRORS * pace.error_seconds:
            drawn = "" if pace is measured.slept else ", in addition to the random variation"
            yield (
                f"{what} took {pace.measured_seconds * 1e3:.1f} ms per update, "
                f"{pace.excess_ratio:.2%} more than the configured {pace.asked_seconds * 1e3:.1f} "
                f"ms ({limit * 1e3:.1f} ms more is allowed{drawn}). {fix.format(cure)}"
            )


def _crowded(measured: Measurements) -> bool:
    """Whether the host was busy for too long, in a run whose pace the scenario sets."""
    share = measured.busy_share_ratio
    return measured.paced and share is not None and share > BUSY_SHARE_LIMIT_RATIO


def _pressure(measured: Measurements) -> Iterator[str]:
    """Yield a reason if the host was overloaded and no class has a speed.

    The duration of the steps then depends on the host, and no other rule detects this.
    """
    waited = measured.pressure_ratio
    blind = measured.late_steps_ratio is None and measured.late_requests_ratio is None
    if blind and _crowded(measured) and waited is not None and waited > PRESSURE_LIMIT_RATIO:
        yield (
            f"No class has a speed, and processes waited for a CPU during {waited:.2%} of the run "
            f"({PRESSURE_LIMIT_RATIO:.0%} is allowed): the host determined the duration of the "
            "steps. Set a speed for the classes, lower time_scale, use fewer workers, or set "
            "paced: false."
        )


def _busy(measured: Measurements) -> Iterator[str]:
    if not _crowded(measured):
        return
    waited = measured.pressure_ratio
    also = "" if waited is None else f", and processes waited for a CPU during {waited:.2%} of it"
    yield (
        f"The host was more than {BUSY_LIMIT_RATIO:.0%} busy during "
        f"{measured.busy_share_ratio:.2%} of the run{also}. This alone does not make the run "
        "invalid: delays that it caused would be separate reasons."
    )


def _busy_hosts(measured: Measurements) -> Iterator[str]:
    for host, share in measured.busy_hosts.items():
        if measured.paced and share > BUSY_SHARE_LIMIT_RATIO:
            yield (
                f"Host {host} was more than {BUSY_LIMIT_RATIO:.0%} busy during {share:.2%} of the "
                "run. This alone does not make the run invalid."
            )


_FIX_LOSSES = {
    name: f"Give {first} or {second} a longer `queue` or a higher `rate`, use fewer workers, or "
    "configure less `loss`."
    for name, first, second in (
        ("ingress", "workers.classes.{}.link.up", "ps.link.down"),
        ("egress", "ps.link.up", "workers.classes.{}.link.down"),
    )
}


def _cycle(measured: Measurements) -> Iterator[str]:
    """Yield a reason if the host delayed workers: that changes the distribution of staleness."""
    ratio = measured.unexplained_ratio
    if measured.paced and ratio is not None and ratio > UNEXPLAINED_LIMIT_RATIO:
        yield (
            f"The host caused {ratio:.2%} of the time between two pushes of a worker: it was "
            "neither step, nor think time, nor transfer, nor waiting for the algorithm "
            f"({UNEXPLAINED_LIMIT_RATIO:.0%} is allowed). Such delays change the distribution of "
            "staleness. Lower time_scale, set a longer workers.think.mean, or use fewer workers."
        )


def _traffic(measured: Measurements) -> Iterator[str]:
    slowest_up, slowest_down = measured.slowest_classes
    for name, flow, slowest in (
        ("ingress", measured.ingress, slowest_up),
        ("egress", measured.egress, slowest_down),
    ):
        if flow.tcp_bytes is None:
            continue
        again, payload = flow.retransmitted_bytes or 0, flow.payload_bytes or 0
        ratio = again / flow.tcp_bytes if flow.tcp_bytes else 0.0
        if ratio > RETRANSMITTED_LIMIT_RATIO:
            yield (
                f"{name} of the parameter server: {again:,} of {flow.tcp_bytes:,} TCP bytes were "
                f"retransmitted, {ratio:.2%} ({RETRANSMITTED_LIMIT_RATIO:.0%} is allowed). "
                f"{_FIX_LOSSES[name].format(slowest)}"
            )
        if payload > flow.tcp_bytes:
            yield (
                f"{name} of the parameter server: the updates have {payload:,} payload bytes, more "
                f"than the {flow.tcp_bytes:,} bytes that the sockets carried. One of these counts "
                "is wrong: run the scenario again."
            )
    yield from _reconciliation(measured.ingress, measured.sent_beyond)


def _reconciliation(flow: Flow, sent_beyond: Mapping[str, int]) -> Iterator[str]:
    """Yield a reason if wire bytes and socket bytes differ by more than was retransmitted."""
    if not flow.wire_bytes or flow.expected_wire_bytes is None:
        return
    difference = flow.wire_bytes - flow.expected_wire_bytes
    unexplained = abs(difference - min(max(difference, 0), flow.retransmitted_bytes or 0))
    if (ratio := unexplained / flow.wire_bytes) > RECONCILIATION_LIMIT_RATIO:
        least = unexplained / MOST_SENDERS
        senders = [f"{name} {sent:,}" for name, sent in sent_beyond.items() if sent >= least]
        others = ", ".join(senders[:MOST_SENDERS])
        who = f" Bytes that nodes sent in addition to pushes: {others}." if senders else ""
        yield (
            f"ingress of the parameter server: the interface counted {flow.wire_bytes:,} bytes, "
            f"but {flow.expected_wire_bytes:,} are expected from the bytes of the sockets, a "
            f"difference of {ratio:.2%} ({RECONCILIATION_LIMIT_RATIO:.0%} is allowed).{who} Avoid "
            "traffic of other programs or of `testbed exec` on the parameter server's link."
        )


def _unchecked(measured: Measurements) -> Iterator[str]:
    if measured.paced and measured.busy_share_ratio is None:
        yield "the load of the host"
    yield from unchecked_links(measured.rates, read_back=measured.differences is not None)
    if measured.ingress.tcp_bytes is None:
        yield "the PS's traffic"
    if measured.gaps is None:
        yield "gaps in the nodes' execution"


RULES: Mapping[str, Callable[[Measurements], Iterator[str]]] = {
    "end": _end,
    "nodes": _nodes,
    "followed": _followed,
    "gaps": _gaps,
    "links": _links,
    "lateness": _lateness,
    "clocks": clocks,
    "producers": producers,
    "received": received,
    "cycle": _cycle,
    "pressure": _pressure,
    "traffic": _traffic,
}
"""Rules of the verdict, in the order of the report."""
