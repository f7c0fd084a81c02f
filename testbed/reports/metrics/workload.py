"""The metrics of a workload: what every node carries and takes, and the numbers it prints."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from testbed.reports.metrics.declared import EXPORTER_TIME, RUN_STATE, TIME, Metric, Sample
from testbed.reports.metrics.scraped import ScrapedSink
from testbed.telemetry.rows import MetricRow, NodeRow, PairRow, Reading
from testbed.values.topology import Plan

READINGS, PAIRS, OUTPUT = "nodes.csv", "pairs.csv", "the node's output"
OF_NODE = ("node", "class")
BOTH_WAYS = (*OF_NODE, "direction")

BYTES = Metric(
    "testbed_node_bytes_total",
    "Ethernet bytes that a node of a workload has sent (up) and received (down).",
    READINGS,
    BOTH_WAYS,
)
PACKETS = Metric(
    "testbed_node_packets_total", "Packets that it has sent and received.", READINGS, BOTH_WAYS
)
RETRANSMITTED = Metric(
    "testbed_node_retransmitted_bytes_total", "TCP data that it has sent again.", READINGS, OF_NODE
)
DROPPED = Metric(
    "testbed_node_dropped_packets_total",
    "Packets to the node that a full queue has dropped.",
    READINGS,
    OF_NODE,
)
CPU = Metric(
    "testbed_node_cpu_seconds_total",
    "Its CPU time, if control groups report it.",
    READINGS,
    OF_NODE,
)
MEMORY = Metric("testbed_node_memory_bytes", "Its memory in use.", READINGS, OF_NODE)
PAIR_BYTES = Metric(
    "testbed_pair_bytes_total",
    "Ethernet bytes that it has sent to another node, of any protocol, if the kernel counts them.",
    PAIRS,
    (*OF_NODE, "peer"),
)
PAIR_PACKETS = Metric(
    "testbed_pair_packets_total", "Packets of these bytes.", PAIRS, (*OF_NODE, "peer")
)
PRINTED = Metric(
    "testbed_printed_value",
    "The last number that a node has printed or served of a metric of the scenario.",
    OUTPUT,
    (*OF_NODE, "metric"),
)

OF_NODES = (BYTES, PACKETS, RETRANSMITTED, DROPPED, CPU, MEMORY)
WORKLOAD_METRICS = (*OF_NODES, PAIR_BYTES, PAIR_PACKETS, PRINTED)
"""The metrics that only a workload has; it also has TIME, RUN_STATE and EXPORTER_TIME."""


class WorkloadMetrics(ScrapedSink):
    """The metrics of a workload; without an algorithm, the label for it is empty."""

    METRICS = (TIME, RUN_STATE, *WORKLOAD_METRICS, EXPORTER_TIME)

    def __init__(self, plan: Plan, *, seconds: Callable[[], float] = time.thread_time) -> None:
        super().__init__((plan.run, ""), seconds=seconds)
        self._classes = {node.name: node.device_class for node in plan.nodes}
        self._nodes: dict[str, NodeRow] = {}
        self._pairs: dict[tuple[str, str], PairRow] = {}
        self._printed: dict[tuple[str, str], float] = {}

    def readings(self, rows: Sequence[Reading]) -> None:
        with self.taking():
            for row in rows:
                if isinstance(row, NodeRow):
                    self._nodes[row.node] = row
                elif isinstance(row, PairRow):
                    self._pairs[row.node, row.peer] = row
                elif isinstance(row, MetricRow):
                    self._printed[row.node, row.metric] = row.value

    def samples(self) -> Iterator[Sample]:
        """Yield the current samples."""
        for name, row in self._nodes.items():
            node = (name, self._classes[name])
            yield Sample(BYTES, row.up_bytes, (*node, "up"))
            yield Sample(BYTES, row.down_bytes, (*node, "down"))
            yield Sample(PACKETS, row.up_packets, (*node, "up"))
            yield Sample(PACKETS, row.down_packets, (*node, "down"))
            yield Sample(RETRANSMITTED, row.retransmitted_bytes, node)
            for metric, value in (
                (DROPPED, row.dropped_packets),
                (CPU, row.cpu_seconds),
                (MEMORY, row.memory_bytes),
            ):
                if value is not None:
                    yield Sample(metric, value, node)
        for (name, peer), pair in self._pairs.items():
            if pair.frame_bytes is not None and pair.packets is not None:
                labels = (name, self._classes[name], peer)
                yield Sample(PAIR_BYTES, pair.frame_bytes, labels)
                yield Sample(PAIR_PACKETS, pair.packets, labels)
        for (name, metric_name), value in self._printed.items():
            yield Sample(PRINTED, value, (name, self._classes[name], metric_name))
