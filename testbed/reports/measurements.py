"""Input of the verdict: the measurements of a run, as numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from testbed.reports.followed import Followed
from testbed.telemetry.event_kinds import RateMeasured, RoundTripMeasured


@dataclass(frozen=True)
class Flow:
    """One direction of the PS's link; None for what was not measured."""

    payload_bytes: int | None = None  # of the updates applied at the last reading
    tcp_bytes: int | None = None  # carried by the sockets, without headers and retransmissions
    retransmitted_bytes: int | None = None  # TCP payload that was sent again
    wire_bytes: int | None = None  # counted by the interface
    expected_wire_bytes: int | None = None  # what it should have counted, from tcp_bytes


@dataclass(frozen=True)
class Pace:
    """Mean time for computing and thinking per update, in real seconds."""

    asked_seconds: float  # as the scenario sets it
    measured_seconds: float
    error_seconds: float = 0.0  # its standard error, as think times are drawn

    @property
    def excess_ratio(self) -> float:
        """Excess of the measured over the configured time, as a share; may be negative."""
        return self.measured_seconds / self.asked_seconds - 1


@dataclass(frozen=True)
class Measurements:
    """Input of the verdict; None for what was not measured."""

    state: str  # the run's last state, ``finished`` on success
    alive: bool = False  # whether the run is active
    attended: bool = True  # whether its controller ran to the end
    reason: str = ""
    stalled: str = ""  # why the training could not continue, or empty
    updates: int | None = None  # number of applied updates
    paced: bool = True  # whether think times or speeds pace the workers; else a full host is fine
    busy_share_ratio: float | None = None  # of the training, with the host over 90 % busy
    pressure_ratio: float | None = None  # of the training, with a process that waited for a CPU
    gaps: Mapping[str, float] | None = None  # seconds of unplanned stops, by node
    pace: Pace | None = None  # of the workers; None if nothing paces them
    slept: Pace | None = None  # of think times alone; asked: as drawn
    uneven_batches: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # by class
    late_steps_ratio: float | None = None  # of the steps of classes that have a speed
    latest_class: str = ""  # the class with the largest share of them
    slowest_classes: tuple[str, str] = ("NAME", "NAME")  # by the rates of their links: up, down
    late_requests_ratio: float | None = None  # of the requests that the PS served late
    unexplained_ratio: float | None = None  # of the mean cycle: no step, think, transfer or barrier
    differences: Sequence[str] | None = None  # of the qdiscs; None if not read back
    rates: Sequence[RateMeasured] = ()
    round_trips: Sequence[RoundTripMeasured] = ()
    lost: Sequence[tuple[str, str]] = ()  # nodes that ended early, and how
    clock_set_seconds: Sequence[float] = ()  # each step of the host's wall clock
    late_faults: Sequence[tuple[str, float]] = ()  # and by how many real seconds
    lag: Mapping[str, float] = field(default_factory=dict)  # share of records not sent, by producer
    links: Followed | None = None  # that follow recordings; None without such links
    rejected: Sequence[tuple[str, str]] = ()  # nodes with a refused push, and why
    left_out: Sequence[str] = ()  # not supported by the kernel, see ``network.missing: warn``
    ingress: Flow = field(default_factory=Flow)  # from the workers to the PS
    egress: Flow = field(default_factory=Flow)  # from the PS to the workers
    sent_beyond: Mapping[str, int] = field(default_factory=dict)  # bytes other than pushes, by node
