"""Input of the verdict: the measurements of a run, as numbers, and those of its links."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from testbed.telemetry.entry import Entry, only
from testbed.telemetry.event_kinds import (
    LinkChanged,
    LinksCarried,
    LinksRead,
    RateMeasured,
    RoundTripMeasured,
)

if TYPE_CHECKING:
    import pandas as pd


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
    removed: Collection[str] = ()  # those of them that ended with their containers, from outside
    by_hand: Mapping[str, Sequence[str]] = field(default_factory=dict)  # nodes, by what changed
    clock_set_seconds: Sequence[float] = ()  # each step of the host's wall clock
    late_faults: Sequence[tuple[str, float]] = ()  # and by how many real seconds
    clocks: Sequence[ClockDrift] = ()  # of the run's other hosts
    busy_hosts: Mapping[str, float] = field(default_factory=dict)  # as busy_share_ratio, likewise
    lag: Mapping[str, float] = field(default_factory=dict)  # share of records not sent, by producer
    # samples that each device received, and those due, if any were
    received: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    links: Followed | None = None  # that follow recordings; None without such links
    rejected: Sequence[tuple[str, str]] = ()  # nodes with a refused push, and why
    left_out: Sequence[str] = ()  # not supported by the kernel, see ``network.missing: warn``
    ingress: Flow = field(default_factory=Flow)  # from the workers to the PS
    egress: Flow = field(default_factory=Flow)  # from the PS to the workers
    sent_beyond: Mapping[str, int] = field(default_factory=dict)  # bytes other than pushes, by node


@dataclass(frozen=True)
class ClockDrift:
    """The clock of another host against the parameter server's, during a run."""

    host: str
    seconds: float  # largest change of its offset from the most exact measurement
    error_seconds: float  # bound of the error of this difference


LATE_LINK_LIMIT_SECONDS = 0.05


@dataclass(frozen=True)
class Followed:
    """Links whose rate or delay follows a recording."""

    changes: int  # number of changes while the run was active
    late_changes_ratio: float | None  # share of them; None without changes
    latest_change_seconds: float | None  # delay of the latest change, real
    up: LinkRates | None  # None if no rate of that direction follows a recording
    down: LinkRates | None


@dataclass(frozen=True)
class LinkRates:
    """Means over the links and seconds of the readings, emulated."""

    asked_bits_per_second: float
    delivered_bits_per_second: float


def followed(links: pd.DataFrame, events: Sequence[Entry]) -> Followed | None:
    """Return how well links followed their recordings; None without such links."""
    late = [
        change.actual - change.planned
        for change in only(events, LinkChanged)
        if change.action == "recorded"
    ]
    if not late and links.empty:
        return None
    beyond = sum(seconds > LATE_LINK_LIMIT_SECONDS for seconds in late)
    return Followed(
        changes=len(late),
        late_changes_ratio=beyond / len(late) if late else None,
        latest_change_seconds=max(late, default=None),
        up=_rates(links[links["direction"] == "up"]),
        down=_rates(links[links["direction"] == "down"]),
    )


def _rates(links: pd.DataFrame) -> LinkRates | None:
    if links.empty:
        return None
    asked, delivered = links["asked_bits_per_second"], links["delivered_bits_per_second"]
    return LinkRates(float(asked.mean()), float(delivered.mean()))


def left_out(environment: Mapping[str, Any], links: Sequence[LinksRead]) -> list[str]:
    """Return the settings of links that the kernel does not support, each once."""
    found = (what for event in links for what in event.left_out)
    return list(dict.fromkeys((*environment.get("left_out", ()), *found)))


OF_PUSHES = 1.1
"""Wire bytes of a push over its payload: headers are 5 % of full packets."""

OF_REPLIES = 0.05
"""Wire bytes of a reply's acknowledgements over its payload: 66 bytes per two packets are 2.3 %."""


def sent_beyond_pushes(updates: pd.DataFrame, events: Sequence[Entry]) -> dict[str, int]:
    """Return the bytes each node sent beyond its pushes and acknowledgements, most first."""
    readings = only(events, LinksCarried)
    sent: Mapping[str, int] = readings[-1].up_bytes if readings else {}
    up = updates.groupby("worker")["payload_up_bytes"].sum()
    down = updates.groupby("worker")["payload_down_bytes"].sum()
    took = {f"w{worker}": OF_PUSHES * up[worker] + OF_REPLIES * down[worker] for worker in up.index}
    beyond = {name: int(total - took.get(name, 0)) for name, total in sent.items() if name != "ps"}
    return dict(sorted(beyond.items(), key=lambda item: -item[1]))
