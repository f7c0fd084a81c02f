"""All metrics, declared once: the exporter and the table in README.md are generated from them.

Names follow Prometheus's conventions. Every metric also has the labels RUN_LABELS. Seconds are
emulated unless a metric's help text says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from prometheus_client import metrics_core

Kind = Literal["counter", "gauge", "histogram"]

RUN_LABELS = ("run", "algorithm")

FAMILIES: dict[Kind, Any] = {
    "counter": metrics_core.CounterMetricFamily,
    "gauge": metrics_core.GaugeMetricFamily,
    "histogram": metrics_core.HistogramMetricFamily,
}


@dataclass(frozen=True)
class Metric:
    """The definition of a metric; by convention its name contains its kind and unit.

    Attributes:
        source: what its values are read from: an event in events.jsonl, or another part of a run.
        labels: in addition to RUN_LABELS.
        measured_in: the unit, if the name does not end with it.
        histogram: whether it is a histogram.
    """

    name: str
    help: str
    source: str
    labels: tuple[str, ...] = ()
    measured_in: str = ""
    histogram: bool = False

    @property
    def kind(self) -> Kind:
        """Kind of metric; a counter's name ends with ``_total``."""
        if self.histogram:
            return "histogram"
        return "counter" if self.name.endswith("_total") else "gauge"

    @property
    def unit(self) -> str:
        """Declared unit; by default the last word of the name."""
        return self.measured_in or self.name.removesuffix("_total").rpartition("_")[2]

    def family(self) -> Any:
        """Return an empty family for this metric."""
        return FAMILIES[self.kind](self.name, self.help, labels=(*RUN_LABELS, *self.labels))


class Sample(NamedTuple):
    """A metric's value for one set of labels, in the order in which the metric declares them."""

    metric: Metric
    value: float  # of a histogram: the sum
    labels: tuple[str, ...] = ()
    buckets: Sequence[tuple[str, float]] = ()  # of a histogram: upper bound and cumulative count


def families(samples: Iterable[Sample], run: Sequence[str]) -> dict[str, metrics_core.Metric]:
    """Return the families of samples, by metric name; ``run``: of RUN_LABELS."""
    found: dict[str, Any] = {}
    for metric, value, labels, buckets in samples:
        if metric.name not in found:
            found[metric.name] = metric.family()
        values = (buckets, value) if buckets else (value,)
        found[metric.name].add_metric((*run, *labels), *values)
    return found


ROWS = "rows of updates"
STREAMS = "rows of updates, in runs with streams"
TRAFFIC = "readings of traffic"
USAGE = "the agent, every 5 s"
EXPORTER = "the exporter"
PLAN = "the plan"

BY_CLASS = ("class",)
BY_WORKER = ("worker", "class")
BOTH_WAYS = ("direction", "class")

UPDATES = Metric("testbed_updates_total", "Updates in the model.", ROWS, BY_CLASS)
VERSION = Metric("testbed_version", "Version of the model.", ROWS, measured_in="updates")
STALENESS = Metric(
    "testbed_staleness_updates",
    "Staleness of the updates: versions between the pull and the commit.",
    ROWS,
    BY_CLASS,
    histogram=True,
)
PAYLOAD = Metric(
    "testbed_payload_bytes_total",
    "Payload of the updates: up, of their pushes; down, of the pulls that they were computed on.",
    ROWS,
    BOTH_WAYS,
)
LATE_STEPS = Metric(
    "testbed_late_steps_total",
    "Updates whose steps took longer than the speed of their class allows.",
    ROWS,
    BY_CLASS,
    measured_in="updates",
)
REJECTED = Metric(
    "testbed_rejected_total",
    "Calls that the parameter server rejected without effect, by gRPC status code.",
    "rejected, omitted",
    ("reason",),
    measured_in="calls",
)
TCP = Metric(
    "testbed_tcp_bytes_total",
    "Bytes carried by the parameter server's sockets, without headers and retransmissions.",
    TRAFFIC,
    ("direction",),
)
WIRE = Metric(
    "testbed_wire_bytes_total",
    "Ethernet frames through the parameter server's interface, in bytes.",
    TRAFFIC,
    ("direction",),
)
RETRANSMITTED = Metric(
    "testbed_retransmitted_bytes_total",
    "Retransmitted TCP payload.",
    TRAFFIC,
    ("direction",),
)
WORKER_UPDATES = Metric(
    "testbed_worker_updates_total", "Applied updates of a worker.", ROWS, BY_WORKER
)
PUSH_AGE = Metric(
    "testbed_worker_push_age_seconds",
    "Time since a worker's last update was applied, or since the start if it has none.",
    ROWS,
    BY_WORKER,
)
CYCLE = Metric(
    "testbed_worker_cycle_seconds_total",
    "A worker's time by activity: compute, think, transfer, blocked (its replies are delayed by "
    "the parameter server) and, in runs with streams, stream_wait (waiting for samples).",
    ROWS,
    (*BY_WORKER, "activity"),
)


def _of_streams(name: str, text: str, measured_in: str = "") -> Metric:
    return Metric(f"testbed_stream_{name}", text, STREAMS, BY_CLASS, measured_in)


STREAM_PRODUCED = _of_streams(
    "produced_samples_total",
    "Samples received by the workers of a class until their last updates, including repeated ones.",
)
STREAM_USED = _of_streams("used_samples_total", "Of those, used for steps.")
STREAM_BUFFERED = _of_streams(
    "buffered_samples", "Of those, waiting after the steps took their samples."
)
STREAM_TRUNCATED = _of_streams(
    "truncated_samples_total", "Of those, discarded by the buffer policy."
)
STREAM_DUPLICATES = _of_streams("duplicate_samples_total", "Of those, dropped as duplicates.")
STREAM_RATE = _of_streams(
    "samples_per_second",
    "Measured samples received by a worker per second: mean over the workers' last updates.",
    measured_in="samples per second",
)
STREAM_BATCH = _of_streams(
    "batch_samples",
    "Samples of a worker's own stream in an update: mean over the workers' last updates.",
)
STREAM_LAG = _of_streams(
    "lag_seconds",
    "Age of the oldest sample when it was used: mean over the workers' last updates.",
)
STREAM_WAIT = _of_streams("wait_seconds_total", "Time that workers have waited for samples.")
WORKER_STATE = Metric(
    "testbed_worker_state",
    "0 absent, 1 running, 2 frozen or crashed, 3 lost unexpectedly, 4 left or ended as planned.",
    "joined, left, exited, crashed, fault",
    BY_WORKER,
)
WORKERS = Metric(
    "testbed_workers",
    "Workers by state: running, waiting for a reply, frozen, lost, left, absent.",
    "joined, left, exited, crashed, fault, load",
    ("state",),
)
ACCURACY = Metric(
    "testbed_accuracy_ratio",
    "Share of test samples whose class is among the model's first 1, 5 or so predictions at the "
    "last evaluation.",
    "evaluated",
    ("top",),
)
EVALUATION = Metric(
    "testbed_evaluation_metric",
    "Values of the scenario's metrics at the last evaluation, each in its own unit.",
    "evaluated",
    ("metric",),
    measured_in="1",
)
LOSS = Metric(
    "testbed_loss",
    "Mean loss at the last evaluation: cross-entropy in nats, or the model's objective.",
    "evaluated",
    measured_in="1",
)
RATE_CONFIGURED = Metric(
    "testbed_link_configured_bytes_per_second",
    "Planned rate of the links of a class, in bytes per real second.",
    PLAN,
    BOTH_WAYS,
    measured_in="bytes per second",
)
RATE_PROBED = Metric(
    "testbed_link_probed_bytes_per_second",
    "Rate of a class's link, measured before training starts, in bytes per real second.",
    "rate",
    BOTH_WAYS,
    measured_in="bytes per second",
)
TRIP_CONFIGURED = Metric(
    "testbed_link_configured_round_trip_seconds",
    "Planned round trip of the links of a class: the sum of their delays, in real seconds.",
    "round_trip",
    BY_CLASS,
)
TRIP_PROBED = Metric(
    "testbed_link_probed_round_trip_seconds",
    "Median round trip on a class's link, measured before training starts, in real seconds.",
    "round_trip",
    BY_CLASS,
)
TRIP_NOW = Metric(
    "testbed_link_round_trip_seconds",
    "Median smoothed TCP round-trip time (tcpi_rtt) of a class's connections, in real seconds.",
    USAGE,
    BY_CLASS,
)
DROPS = Metric(
    "testbed_link_dropped_packets_total",
    "Packets dropped by the queues towards a class's nodes; for class ps, in both directions.",
    USAGE,
    BOTH_WAYS,
)
BACKLOG = Metric(
    "testbed_link_backlog_bytes",
    "Bytes in the queues towards a class's nodes; for class ps, in both directions.",
    USAGE,
    BOTH_WAYS,
)
LINK_CHANGES = Metric(
    "testbed_link_changes_total", "Changes of links during the run.", "link_changed"
)
FAULTS = Metric(
    "testbed_faults_total",
    "Workers affected by faults; a worker affected twice counts twice.",
    "fault",
    ("fault",),
    measured_in="workers",
)
FAULTS_ACTIVE = Metric(
    "testbed_faults_active",
    "Workers currently affected by a fault.",
    "fault",
    ("fault",),
    measured_in="workers",
)
FAULT_PLANNED = Metric(
    "testbed_fault_planned_seconds",
    "When the latest fault of a kind was planned, from the start of the training.",
    "fault",
    ("fault",),
)
FAULT_ACTUAL = Metric(
    "testbed_fault_actual_seconds",
    "When the latest fault of a kind took place, from the start of the training.",
    "fault",
    ("fault",),
)
HOST_BUSY = Metric(
    "testbed_host_cpu_busy_ratio", "Fraction of the host's CPU time in use.", TRAFFIC
)
HOST_PRESSURE = Metric(
    "testbed_host_cpu_pressure_ratio",
    "Fraction of the time in which at least one process waited for a CPU.",
    TRAFFIC,
)
HOST_MEMORY = Metric(
    "testbed_host_memory_available_bytes", "Available memory of the host.", TRAFFIC
)
CONTAINER_CPU = Metric(
    "testbed_container_cpu_seconds_total",
    "CPU time of a node's container, in real seconds, if control groups report it.",
    USAGE,
    BY_WORKER,
)
CONTAINER_MEMORY = Metric(
    "testbed_container_memory_bytes",
    "Memory of a node's container, if control groups report it.",
    USAGE,
    BY_WORKER,
)
SERVER_CPU = Metric(
    "testbed_server_cpu_seconds_total", "CPU time of the parameter server, real.", "load"
)
SERVER_WAITING = Metric(
    "testbed_server_waiting_requests",
    "Requests waiting at the parameter server for their reply, except those of workers that "
    "crashed or are frozen.",
    "load",
)
TIME = Metric("testbed_time_seconds", "Time since the training started.", EXPORTER)
PROGRESS = Metric(
    "testbed_progress_ratio",
    "Progress of the run towards its stop rule, in updates or time; 1 at its end.",
    EXPORTER,
)
RUN_STATE = Metric("testbed_run_state", "1 for the current state of the run.", "state", ("state",))
REASONS = Metric(
    "testbed_verdict_reasons",
    "Reasons against the validity of the run so far, by rule of the verdict; see the summary "
    "for details.",
    "rate, round_trip, links, fault, gap, exited, rejected; traffic",
    ("rule",),
)
EXPORTER_TIME = Metric(
    "testbed_exporter_cpu_seconds_total",
    "CPU time used for collecting metrics and answering scrapes, real.",
    EXPORTER,
)

METRICS = tuple(one for one in list(globals().values()) if isinstance(one, Metric))
"""All metrics, in the order of a scrape."""

BUCKETS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""Upper bounds of STALENESS's buckets, inclusive; the last bucket is unbounded."""
