"""What a verdict is about: what was measured of a run, in numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from testbed.events.kinds import RateMeasured, RoundTripMeasured
from testbed.reports.followed import Followed


@dataclass(frozen=True)
class Flow:
    """One direction of the PS's link; what was not measured is None."""

    payload_bytes: int | None = None  # of the updates applied at the last reading
    tcp_bytes: int | None = None  # what the sockets carried, without headers and repetitions
    retransmitted_bytes: int | None = None  # what was sent again
    wire_bytes: int | None = None  # what the interface counted
    expected_wire_bytes: int | None = None  # what it should have counted, by the sockets


@dataclass(frozen=True)
class Pace:
    """What computing and thinking take for an update on the mean, in real seconds."""

    asked_seconds: float  # by the scenario
    measured_seconds: float
    error_seconds: float = 0.0  # standard error of it, as think times are drawn

    @property
    def excess_ratio(self) -> float:
        """How much longer it took than it was to, as a share; negative if less."""
        return self.measured_seconds / self.asked_seconds - 1


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
    pressure_ratio: float | None = None  # of the training, with a process that waited for a CPU
    gaps: Mapping[str, float] | None = None  # seconds for which nodes stood still, unplanned
    pace: Pace | None = None  # of the workers; None if nothing paces them
    slept: Pace | None = None  # of thinking alone; asked is what was drawn
    uneven_batches: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # by class
    late_steps_ratio: float | None = None  # of the steps of classes that have a speed
    latest_class: str = ""  # the one with the largest share of them
    slowest_classes: tuple[str, str] = ("NAME", "NAME")  # by their rates: up, down
    late_requests_ratio: float | None = None  # of the requests that the PS served late
    unexplained_ratio: float | None = None  # of the mean cycle: no step, think, transfer or barrier
    differences: Sequence[str] | None = None  # of the qdiscs; None if they were not read back
    rates: Sequence[RateMeasured] = ()
    round_trips: Sequence[RoundTripMeasured] = ()
    lost: Sequence[tuple[str, str]] = ()  # nodes that ended before their time, and how
    clock_set_seconds: Sequence[float] = ()  # how far the host's wall clock was set, each time
    late_faults: Sequence[tuple[str, float]] = ()  # those done late, and by how many real seconds
    lag: Mapping[str, float] = field(default_factory=dict)  # share of what producers have not sent
    links: Followed | None = None  # those that follow recordings; None for none
    rejected: Sequence[tuple[str, str]] = ()  # nodes whose push was refused, and why
    left_out: Sequence[str] = ()  # what the kernel lacks, and ``network.missing: warn`` let pass
    ingress: Flow = field(default_factory=Flow)  # from the workers to the PS
    egress: Flow = field(default_factory=Flow)  # from the PS to the workers
    sent_beyond: Mapping[str, int] = field(default_factory=dict)  # bytes of no push, by node
