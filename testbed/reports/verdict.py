"""Was the emulation faithful? A verdict over what was measured, with the reasons in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from testbed.events.kinds import RateMeasured, RoundTripMeasured

BUSY_LIMIT_RATIO = 0.9
BUSY_SHARE_LIMIT_RATIO = 0.1
LATE_LIMIT_RATIO = 0.05
OVERSLEPT_LIMIT_RATIO = 0.05
UNEXPLAINED_LIMIT_RATIO = 0.2
RATE_LIMIT_RATIO = 0.05
ROUND_TRIP_LIMIT_RATIO = 0.05
ROUND_TRIP_LIMIT_SECONDS = 0.001
STANDARD_ERRORS = 4
RETRANSMITTED_LIMIT_RATIO = 0.05
RECONCILIATION_LIMIT_RATIO = 0.01


@dataclass(frozen=True)
class Flow:
    """One direction of the PS's link; what was not measured is None."""

    payload_bytes: int | None = None  # of the updates applied at the last reading
    tcp_bytes: int | None = None  # what the sockets carried, without headers and repetitions
    retransmitted_bytes: int | None = None  # what was sent again
    wire_bytes: int | None = None  # what the interface counted
    expected_wire_bytes: int | None = None  # what it should have counted, by the sockets


@dataclass(frozen=True)
class Measurements:
    """What the verdict is about; None for what was not measured."""

    state: str  # the run's last state, ``finished`` if all went well
    alive: bool = False  # whether the run is still going on
    attended: bool = True  # whether its controller lived to its end
    reason: str = ""
    stalled: str = ""  # why the training could not go on, or empty
    updates: int | None = None  # how many were applied
    paced: bool = True  # whether think times or speeds pace the workers; else the host may be full
    busy_share_ratio: float | None = None  # of the training, with the host over 90 % busy
    late_steps_ratio: float | None = None  # of the steps of classes that have a speed
    late_requests_ratio: float | None = None  # of the requests that the PS served late
    overslept_ratio: float | None = None  # by which think times were longer than drawn
    unexplained_ratio: float | None = None  # of the mean cycle: no step, think, transfer or barrier
    differences: Sequence[str] | None = None  # of the qdiscs; None if they were not read back
    rates: Sequence[RateMeasured] = ()
    round_trips: Sequence[RoundTripMeasured] = ()
    lost: Sequence[tuple[str, str]] = ()  # nodes that ended before their time, and how
    rejected: Sequence[tuple[str, str]] = ()  # nodes whose push was refused, and why
    left_out: Sequence[str] = ()  # what the kernel lacks, and ``network.missing: warn`` let pass
    ingress: Flow = field(default_factory=Flow)  # from the workers to the PS
    egress: Flow = field(default_factory=Flow)  # from the PS to the workers


@dataclass(frozen=True)
class Verdict:
    """Whether the run may be believed."""

    valid: bool  # no rule speaks against it
    reasons: tuple[str, ...]  # what does; measured and allowed
    unchecked: tuple[str, ...]  # rules for which nothing was measured


def judge(measured: Measurements) -> Verdict:
    """Apply every rule."""
    rules = (_end, _nodes, _links, _busy, _lateness, _cycle, _traffic)
    reasons = tuple(sentence for rule in rules for sentence in rule(measured))
    return Verdict(not reasons, reasons, tuple(_unchecked(measured)))


def _end(measured: Measurements) -> Iterator[str]:
    why = f": {measured.reason}" if measured.reason else ""
    if measured.state in ("failed", "interrupted"):
        how = "failed" if measured.state == "failed" else "was interrupted"
        yield f"The run {how} before its end{why}."
    elif measured.alive:
        yield "The run is still going on."
    elif measured.state != "finished":
        yield f"The run did not come to its end: its controller died in the state {measured.state}."
    elif not measured.attended:
        yield (
            "The run came to its end without its controller, which had died: what happened to "
            "nodes, links and host from then on is not on record."
        )
    elif measured.updates == 0:
        yield f"No update was applied{why}."
    if measured.stalled:
        yield f"The training {measured.stalled}."


def _nodes(measured: Measurements) -> Iterator[str]:
    for node, why in measured.rejected:
        yield f"A push of {node} was rejected: {why}."
    for node, how in measured.lost:
        yield f"{node} was lost before the end: {how}."


def _links(measured: Measurements) -> Iterator[str]:
    for difference in measured.differences or ():
        yield f"A link is not as configured: {difference}."
    for rate in measured.rates:
        asked, found = rate.configured_bits_per_second, rate.measured_bits_per_second
        off = abs(found - asked) / asked
        if off > RATE_LIMIT_RATIO:
            yield (
                f"{rate.link}: the rate measured {_bits(found)}, "
                f"{off:.2%} off the configured {_bits(asked)} "
                f"({RATE_LIMIT_RATIO:.0%} is allowed)."
            )
    for trip in measured.round_trips:
        away = abs(trip.measured_seconds - trip.configured_seconds)
        limit = max(ROUND_TRIP_LIMIT_RATIO * trip.configured_seconds, ROUND_TRIP_LIMIT_SECONDS)
        if away > limit + STANDARD_ERRORS * trip.error_seconds:
            yield (
                f"{trip.link}: the round trip measured {trip.measured_seconds * 1e3:.2f} ms, "
                f"{away * 1e3:.2f} ms off the configured {trip.configured_seconds * 1e3:.2f} ms "
                f"({limit * 1e3:.2f} ms and what the jitter explains are allowed)."
            )
    for what in measured.left_out:
        yield f"The network ran without what the kernel lacks (missing: warn): {what}."


def _busy(measured: Measurements) -> Iterator[str]:
    share = measured.busy_share_ratio
    if measured.paced and share is not None and share > BUSY_SHARE_LIMIT_RATIO:
        yield (
            f"The host was more than {BUSY_LIMIT_RATIO:.0%} busy during {share:.2%} of the run "
            f"({BUSY_SHARE_LIMIT_RATIO:.0%} is allowed)."
        )


def _lateness(measured: Measurements) -> Iterator[str]:
    ratio = measured.late_steps_ratio
    if ratio is not None and ratio > LATE_LIMIT_RATIO:
        yield (
            f"{ratio:.2%} of the steps took longer than their class's speed "
            f"({LATE_LIMIT_RATIO:.0%} is allowed)."
        )
    ratio = measured.late_requests_ratio
    if ratio is not None and ratio > LATE_LIMIT_RATIO:
        yield (
            f"The parameter server was late for {ratio:.2%} of the requests, by its service "
            f"({LATE_LIMIT_RATIO:.0%} is allowed)."
        )


def _cycle(measured: Measurements) -> Iterator[str]:
    """Where the host makes the waits, the law of the staleness is not the scenario's."""
    ratio = measured.overslept_ratio
    if measured.paced and ratio is not None and ratio > OVERSLEPT_LIMIT_RATIO:
        yield (
            f"Think times were {ratio:.2%} longer than drawn ({OVERSLEPT_LIMIT_RATIO:.0%} is "
            "allowed)."
        )
    ratio = measured.unexplained_ratio
    if measured.paced and ratio is not None and ratio > UNEXPLAINED_LIMIT_RATIO:
        yield (
            f"{ratio:.2%} of the time between two pushes of a worker was neither its step, nor "
            f"think, nor what its links take ({UNEXPLAINED_LIMIT_RATIO:.0%} is allowed): the host "
            "makes the law of the waits."
        )


def _traffic(measured: Measurements) -> Iterator[str]:
    for name, flow in (("ingress", measured.ingress), ("egress", measured.egress)):
        if flow.tcp_bytes is None:
            continue
        again, payload = flow.retransmitted_bytes or 0, flow.payload_bytes or 0
        ratio = again / flow.tcp_bytes if flow.tcp_bytes else 0.0
        if ratio > RETRANSMITTED_LIMIT_RATIO:
            yield (
                f"{name}: {again:,} of {flow.tcp_bytes:,} tcp bytes were retransmitted, "
                f"{ratio:.2%} ({RETRANSMITTED_LIMIT_RATIO:.0%} is allowed)."
            )
        if payload > flow.tcp_bytes:
            yield (
                f"{name}: {payload:,} payload bytes do not fit into the {flow.tcp_bytes:,} bytes "
                "that the sockets carried."
            )
    yield from _reconciliation(measured.ingress)


def _reconciliation(flow: Flow) -> Iterator[str]:
    """Wire bytes beyond the expected may be repetitions that arrived twice, nothing else."""
    if not flow.wire_bytes or flow.expected_wire_bytes is None:
        return
    difference = flow.wire_bytes - flow.expected_wire_bytes
    explained = min(max(difference, 0), flow.retransmitted_bytes or 0)
    ratio = abs(difference - explained) / flow.wire_bytes
    if ratio > RECONCILIATION_LIMIT_RATIO:
        yield (
            f"ingress: the interface counted {flow.wire_bytes:,} bytes where the sockets account "
            f"for {flow.expected_wire_bytes:,}, {ratio:.2%} off "
            f"({RECONCILIATION_LIMIT_RATIO:.0%} is allowed)."
        )


def _unchecked(measured: Measurements) -> Iterator[str]:
    if measured.paced and measured.busy_share_ratio is None:
        yield "how busy the host was"
    if measured.differences is None:
        yield "the links' qdiscs"
    if measured.ingress.tcp_bytes is None:
        yield "the PS's traffic"


def _bits(rate: float) -> str:
    return f"{rate / 1e6:.3g} mbit/s"
