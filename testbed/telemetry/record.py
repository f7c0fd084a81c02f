"""Writes a run folder while the run goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

from testbed.telemetry.events import event_line
from testbed.telemetry.folder import RunFolder, State
from testbed.telemetry.host import HostSample
from testbed.telemetry.parts import PartWriter
from testbed.telemetry.spool import Rows
from testbed.telemetry.tables import (
    COUNTERS,
    EVALUATION_COLUMNS,
    TRAFFIC_COLUMNS,
    Table,
    evaluation_row,
)

LATEST_SECONDS = 10.0
"""After so long at the latest an event of the parameter server is seen here."""


class Counters(Protocol):
    """The kernel's totals for the PS's link since the nodes were attached; see traffic.csv."""

    @property
    def sockets(self) -> int:
        """Connections that are open."""

    @property
    def wire_rx_bytes(self) -> int:
        """Received by the PS's ``eth0``."""

    @property
    def wire_rx_packets(self) -> int:
        """The same, in packets."""

    @property
    def wire_tx_bytes(self) -> int:
        """Sent by the PS's ``eth0``."""

    @property
    def wire_tx_packets(self) -> int:
        """The same, in packets."""

    @property
    def tcp_received_bytes(self) -> int:
        """Received by the PS's sockets, without headers and repetitions."""

    @property
    def tcp_segments_in(self) -> int:
        """Segments received by the PS's sockets."""

    @property
    def tcp_acked_bytes(self) -> int:
        """Sent by the PS's sockets and acknowledged."""

    @property
    def tcp_segments_out(self) -> int:
        """Segments sent by the PS's sockets."""

    @property
    def retransmitted_in_bytes(self) -> Mapping[str, int]:
        """Sent again by the sockets of every worker."""

    @property
    def retransmitted_out_bytes(self) -> int:
        """Sent again by the PS's sockets."""


@dataclass(frozen=True)
class Clock:
    """The two clocks of a recording.

    Attributes:
        wall: seconds since 1970.
        steady: seconds from any origin, never set back.
    """

    wall: Callable[[], float] = time.time
    steady: Callable[[], float] = time.monotonic


class Recorder:
    """Appends to a run folder; used by the one process that controls the run.

    Everything is on its way to the disk when a method returns, except the last few seconds of
    updates, which the parameter server's spool holds too.

    Args:
        folder: the run's folder; what it holds already is continued.
        time_scale: emulated seconds per real second.
        clock: see Clock.
    """

    def __init__(self, folder: RunFolder, *, time_scale: float, clock: Clock | None = None) -> None:
        self.folder = folder
        self._time_scale = time_scale
        self._clock = clock or Clock()
        self._start: float | None = None  # steady
        self._events = folder.events.open("a", buffering=1, encoding="utf-8")
        self._evaluations = Table(folder.evaluations, tuple(EVALUATION_COLUMNS))
        self._traffic = Table(folder.traffic, tuple(TRAFFIC_COLUMNS))
        self._parts = PartWriter(folder.updates)

    @property
    def elapsed_seconds(self) -> float | None:
        """Real seconds since the training started, or None before."""
        return None if self._start is None else self._clock.steady() - self._start

    def state(self, state: State, *, reason: str = "", exit_code: int | None = None) -> None:
        """The run has come to another state: ``run.json`` and an event.

        One that says it is finished has all its updates in their place.
        """
        if state == "finished":
            self._parts.close()
        self.folder.move(state, now=self._clock.wall(), reason=reason, exit_code=exit_code)
        self.event("state", state=state, **({"reason": reason} if reason else {}))

    def event(self, event: str, **fields: Any) -> None:
        """Something happened just now; docs/run-folder.md lists the events that reports read."""
        self._write(
            {"time": self._clock.wall(), "elapsed_seconds": self.elapsed_seconds, "event": event}
            | fields
        )

    def brought_up(self, seconds: float) -> None:
        """All nodes run and have joined, ``seconds`` (real) after the command was given."""
        self.event("brought_up", seconds=seconds)

    def torn_down(self, seconds: float) -> None:
        """Nothing of the run is left on the host; it took so many real seconds."""
        self.event("torn_down", seconds=seconds)

    def links(
        self,
        *,
        checked: int,
        differences: Sequence[str],
        left_out: Sequence[str] = (),
        unseeded: int = 0,
    ) -> None:
        """The qdiscs were read back.

        Args:
            checked: how many links were compared.
            differences: what the kernel has otherwise than configured, with the link's name.
            left_out: what was not applied because the kernel lacks netem, with the link's name.
            unseeded: links whose jitter and losses do not repeat, as the kernel takes no seed.
        """
        self.event(
            "links",
            checked=checked,
            differences=list(differences),
            left_out=list(left_out),
            unseeded=unseeded,
        )

    def rate(
        self, link: str, *, configured_bits_per_second: float, measured_bits_per_second: float
    ) -> None:
        """A link's rate was measured; ``link`` is the node and the direction, like ``w3 up``."""
        self.event(
            "rate",
            link=link,
            configured_bits_per_second=configured_bits_per_second,
            measured_bits_per_second=measured_bits_per_second,
        )

    def round_trip(
        self,
        link: str,
        *,
        configured_seconds: float,
        measured_seconds: float,
        error_seconds: float = 0.0,
    ) -> None:
        """A link's round trip was measured; its median is known up to ``error_seconds``."""
        self.event(
            "round_trip",
            link=link,
            configured_seconds=configured_seconds,
            measured_seconds=measured_seconds,
            error_seconds=error_seconds,
        )

    def exited(self, node: str, *, status: int, planned: bool = False) -> None:
        """A node's process ended; ``status`` is negative for a signal."""
        self.event("exited", node=node, status=status, planned=planned)

    def memory(self, private_bytes: Mapping[str, int]) -> None:
        """Memory that each of these workers has to itself; the last call of a run counts."""
        self.event("memory", private_bytes=dict(private_bytes))

    def from_ps(self, event: Mapping[str, Any]) -> None:
        """An event of the parameter server's, as it wrote it; evaluations go to their table too."""
        if event["event"] == "started":
            since = self._clock.wall() - float(event["time"])
            # A wall clock that was set meanwhile says nothing; then the event is from just now.
            self._start = self._clock.steady() - (since if 0 <= since <= LATEST_SECONDS else 0.0)
        self._write({**event, "source": "ps"})
        if event["event"] == "evaluated":
            self.evaluation(event)

    def evaluation(self, measured: Mapping[str, Any]) -> None:
        """A row of evaluations.csv, from the fields of an ``evaluated`` event."""
        self._evaluations.append(evaluation_row(measured, time_scale=self._time_scale))

    def updates(self, rows: Rows) -> None:
        """New rows of the spool, in its order; call it with none now and then, to let time pass."""
        self._parts.add(rows, now=self._clock.steady())

    def traffic(self, counters: Counters, host: HostSample | None = None) -> None:
        """A reading of the kernel's counters, and of the host."""
        elapsed = self.elapsed_seconds
        row: dict[str, Any] = {name: getattr(counters, name) for name in COUNTERS}
        row["retransmitted_in_bytes"] = sum(counters.retransmitted_in_bytes.values())
        if elapsed is not None:
            row |= {"time_seconds": elapsed * self._time_scale, "wall_seconds": elapsed}
        if host is not None:
            row |= {
                "host_busy_ratio": host.busy_ratio,
                "host_available_bytes": host.available_bytes,
            }
        self._traffic.append(row)

    def close(self) -> None:
        """Write out what is pending and close every file; doing it twice is harmless.

        Every file is closed, also where the pending updates cannot be written.
        """
        with closing(self._traffic), closing(self._evaluations), closing(self._events):
            self._parts.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # After a failure the folder may take nothing any more; what went wrong first is told.
        with suppress(OSError) if error is not None else nullcontext():
            self.close()

    def _write(self, event: Mapping[str, Any]) -> None:
        self._events.write(event_line(event))
