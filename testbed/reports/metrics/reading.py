"""The metrics sink: it builds a run's metrics from what sinks receive, without queries to nodes."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from statistics import median

from testbed.models.metrics.top_k import rank_of
from testbed.reports import measures
from testbed.reports.history import RunHistory, late_faults, planned_gaps
from testbed.reports.measurements import Flow, Measurements
from testbed.reports.metrics import declared
from testbed.reports.metrics.declared import METRICS, Sample
from testbed.reports.metrics.outline import BITS, Outline, population
from testbed.reports.metrics.scraped import ScrapedSink
from testbed.reports.metrics.updates import UpdateTotals
from testbed.reports.verdict import RULES
from testbed.telemetry.entry import NAMES, Entry, only
from testbed.telemetry.event import Event
from testbed.telemetry.event_kinds import (
    FaultApplied,
    LinkChanged,
    LinksRead,
    RateMeasured,
    RoundTripMeasured,
)
from testbed.telemetry.ps_events import Evaluated, Finished, Gap, Load, Omitted, Rejected, Restored
from testbed.telemetry.rows import Reading, Rows, TrafficRow
from testbed.values.usage import ContainerUse, Queue, Usage

JUDGED: tuple[type[Event], ...] = (
    *(RateMeasured, RoundTripMeasured, LinksRead, FaultApplied, Gap),
    *(Rejected, Omitted, Finished),
)
"""Events from which the rules in LIVE_RULES are evaluated."""

LIVE_RULES = ("nodes", "gaps", "links", "lateness", "traffic")
"""Rules of the verdict that can be evaluated during a run."""


class MetricsSink(ScrapedSink):
    """The metrics of a training.

    Args:
        outline: the plan of the run.
        record: returns all recorded updates; called after a restart of the parameter server,
            which loses the updates since its checkpoint.
        seconds: see ``ScrapedSink``.
    """

    METRICS = METRICS

    def __init__(
        self,
        outline: Outline,
        record: Callable[[], Rows] | None = None,
        *,
        seconds: Callable[[], float] = time.thread_time,
    ) -> None:
        super().__init__(outline.labels, seconds=seconds)
        self.outline = outline
        self._record = record
        self._updates = UpdateTotals(outline.classes, outline.paced, streams=outline.streams)
        self._history = RunHistory()
        self._links = LinkReadings(outline)
        self._judged: list[Entry] = []
        self._ingress, self._egress = Flow(), Flow()
        self._rejected = Counter[str]()
        self._evaluated: Evaluated | None = None
        self._load: Load | None = None

    def event(self, entry: Entry) -> None:
        """Update counters and the run's history from an event."""
        with self.taking():
            super().event(entry)
            event = entry.event
            self._history.take(event)
            self._links.tell(event)
            if isinstance(event, JUDGED):
                self._judged.append(entry)
            match event:
                case Rejected(code=code):
                    self._rejected[code or "UNKNOWN"] += 1
                case Omitted(kind=kind, count=count) if kind == NAMES[Rejected]:
                    self._rejected["OMITTED"] += count
                case Evaluated():
                    self._evaluated = event
                case Load():
                    self._load = event
                case Restored(version) if self._record is not None:
                    self._updates.clear()
                    self._updates.add(self._record()[:version])

    def updates(self, rows: Rows, *, now: float) -> None:
        """Count new updates."""
        if len(rows):
            with self.taking():
                self._updates.add(rows)

    def readings(self, rows: Sequence[Reading]) -> None:
        """Keep the latest traffic reading."""
        for row in rows:
            if isinstance(row, TrafficRow):
                with self.taking():
                    self._read_traffic(row)

    def _read_traffic(self, row: TrafficRow) -> None:
        self._links.read(row)
        up, down = self._updates.payload("up"), self._updates.payload("down")
        self._ingress = Flow(up, row.tcp_received_bytes, row.retransmitted_in_bytes)
        self._egress = Flow(down, row.tcp_acked_bytes, row.retransmitted_out_bytes)

    def usage(self, usage: Usage) -> None:
        """Keep the latest reading of queues and containers."""
        with self.taking():
            self._links.read(usage)

    def samples(self) -> Iterator[Sample]:
        """Yield the current samples."""
        outline, per_worker = self.outline, self.outline.per_worker
        yield from self._updates.samples(self._now, per_worker=per_worker)
        waiting = self._load.waiting if self._load else 0
        yield from population(self._history, outline, waiting=waiting, per_worker=per_worker)
        yield from outline.samples()
        yield from self._links.samples(per_worker=per_worker)
        for reason, count in (self._rejected or {"INVALID_ARGUMENT": 0}).items():
            yield Sample(declared.REJECTED, count, (reason,))
        yield from self._evaluation()
        if self._load is not None:
            yield Sample(declared.SERVER_CPU, self._load.cpu_seconds)
            yield Sample(declared.SERVER_WAITING, self._load.waiting)
        progress = outline.stop.progress(self._updates.total, self._now)
        if progress is not None:
            yield Sample(declared.PROGRESS, progress)
        for rule, count in self._reasons().items():
            yield Sample(declared.REASONS, count, (rule,))

    def _evaluation(self) -> Iterator[Sample]:
        if self._evaluated is None:
            return
        found = self._evaluated
        if found.loss is not None:
            yield Sample(declared.LOSS, found.loss)
        for name, value in found.metrics.items():
            if value is None:  # as of a regression model's accuracy
                continue
            yield Sample(declared.EVALUATION, value, (name,))
            if rank := rank_of(name):
                yield Sample(declared.ACCURACY, value, (rank,))

    def _reasons(self) -> dict[str, int]:
        """Return the number of reasons that each rule of the verdict has found so far."""
        entries, scale = self._judged, self.outline.time_scale
        links = only(entries, LinksRead)
        planned = planned_gaps(self._history.faults, scale)
        measured = Measurements(
            state="finished",
            gaps=measures.gaps(entries, planned=planned),
            late_steps_ratio=self._updates.late_ratio,
            differences=[what for event in links for what in event.differences],
            left_out=[what for event in links for what in event.left_out],
            rates=only(entries, RateMeasured),
            round_trips=only(entries, RoundTripMeasured),
            lost=self._history.lost(),
            late_faults=late_faults(entries, scale),
            rejected=measures.rejected_pushes(entries),
            ingress=self._ingress,
            egress=self._egress,
        )
        return {rule: sum(1 for _ in RULES[rule](measured)) for rule in LIVE_RULES}


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
