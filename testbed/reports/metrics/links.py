"""Metrics of links and containers: probes from before the training, and current readings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from statistics import median

from testbed.reports.metrics import declared
from testbed.reports.metrics.metric import Sample
from testbed.reports.metrics.outline import BITS, Outline
from testbed.telemetry.event_kinds import Event, LinkChanged, RateMeasured, RoundTripMeasured
from testbed.telemetry.rows import TrafficRow
from testbed.values.usage import ContainerUse, Queue, Usage

COLUMNS = {
    declared.TCP: {"up": "tcp_received_bytes", "down": "tcp_acked_bytes"},
    declared.WIRE: {"up": "wire_rx_bytes", "down": "wire_tx_bytes"},
    declared.RETRANSMITTED: {"up": "retransmitted_in_bytes", "down": "retransmitted_out_bytes"},
}
"""Columns of a traffic reading, by metric and direction: up is to the parameter server."""

HOST = {
    declared.HOST_BUSY: "host_busy_ratio",
    declared.HOST_PRESSURE: "host_pressure_ratio",
    declared.HOST_MEMORY: "host_available_bytes",
}


class LinkReadings:
    """The latest readings of links, containers and the host."""

    def __init__(self, outline: Outline) -> None:
        self._outline = outline
        self._changes = 0
        self._probed: dict[tuple[str, str], float] = {}  # by direction and class
        self._trips: dict[str, RoundTripMeasured] = {}  # by class
        self._traffic: TrafficRow | None = None
        self._usage = Usage()

    def tell(self, event: Event) -> None:
        """Process an event."""
        match event:
            case LinkChanged():
                self._changes += 1
            case RateMeasured(link=link, measured_bits_per_second=found) if found is not None:
                *_, name, direction = link.split()
                self._probed[direction, name] = found / BITS
            case RoundTripMeasured(link=link):
                self._trips[link.split()[-1]] = event

    def read(self, seen: TrafficRow | Usage) -> None:
        """Process a reading of counters, or of queues and containers."""
        if isinstance(seen, Usage):
            self._usage = _with_gone(self._usage, seen)
        else:
            self._traffic = seen

    def samples(self, *, per_worker: bool) -> Iterator[Sample]:
        """Yield the current samples."""
        yield Sample(declared.LINK_CHANGES, self._changes)
        for labels, rate in self._probed.items():
            yield Sample(declared.RATE_PROBED, rate, labels)
        for name, trip in self._trips.items():
            yield Sample(declared.TRIP_CONFIGURED, trip.configured_seconds, (name,))
            yield Sample(declared.TRIP_PROBED, trip.measured_seconds, (name,))
        yield from self._counted()
        yield from self._queued()
        if per_worker:
            yield from self._contained()

    def _counted(self) -> Iterator[Sample]:
        if self._traffic is None:
            return
        for metric, columns in COLUMNS.items():
            for direction, column in columns.items():
                if (value := getattr(self._traffic, column)) is not None:
                    yield Sample(metric, value, (direction,))
        for metric, column in HOST.items():
            if (value := getattr(self._traffic, column)) is not None:
                yield Sample(metric, value)

    def _queued(self) -> Iterator[Sample]:
        trips: defaultdict[str, list[float]] = defaultdict(list)
        queues: defaultdict[tuple[str, str], list[Queue]] = defaultdict(list)
        for node, trip in self._usage.round_trips.items():
            trips[self._outline.class_of(node)].append(trip)
        for direction, ends in (("up", self._usage.up), ("down", self._usage.down)):
            for node, queue in ends.items():
                queues[direction, self._outline.class_of(node)].append(queue)
        for name, seconds in trips.items():
            yield Sample(declared.TRIP_NOW, median(seconds), (name,))
        for labels, found in queues.items():
            yield Sample(declared.DROPS, sum(one.dropped_packets for one in found), labels)
            yield Sample(declared.BACKLOG, sum(one.backlog_bytes for one in found), labels)

    def _contained(self) -> Iterator[Sample]:
        for node, used in self._usage.containers.items():
            labels = (node, self._outline.class_of(node))
            if used.cpu_seconds is not None:
                yield Sample(declared.CONTAINER_CPU, used.cpu_seconds, labels)
            if used.memory_bytes is not None:
                yield Sample(declared.CONTAINER_MEMORY, used.memory_bytes, labels)


def _with_gone(before: Usage, now: Usage) -> Usage:
    """Return the current reading plus the last counters of nodes that have ended."""
    queues = {node: Queue(one.dropped_packets, 0) for node, one in before.down.items()}
    server = {node: Queue(one.dropped_packets, 0) for node, one in before.up.items()}
    used = {node: ContainerUse(one.cpu_seconds, None) for node, one in before.containers.items()}
    return replace(
        now,
        down={**queues, **now.down},
        up={**server, **now.up},
        containers={**used, **now.containers},
    )
