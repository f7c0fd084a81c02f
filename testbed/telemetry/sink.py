"""The recipients of a run's events and measurements: its folder, the console, an exporter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from testbed.telemetry.entry import Entry
from testbed.telemetry.rows import LinkRow, MetricRow, NodeRow, PairRow, Rows, TrafficRow
from testbed.values.usage import Usage


class Sink:
    """Receives everything; subclasses override what they need. Methods must return quickly."""

    def event(self, entry: Entry) -> None:
        """Handle an event."""

    def updates(self, rows: Rows, *, now: float) -> None:
        """Handle new rows of the record of updates, in order, at ``now`` steady seconds.

        Without rows, only time passes.
        """

    def traffic(self, row: TrafficRow) -> None:
        """Handle a reading of the kernel's counters and the host."""

    def links(self, rows: Sequence[LinkRow]) -> None:
        """Handle the last second's traffic of links that follow recordings."""

    def node_readings(self, rows: Sequence[NodeRow]) -> None:
        """Handle a reading of the nodes of a workload."""

    def pair_readings(self, rows: Sequence[PairRow]) -> None:
        """Handle changes of what pairs of a workload's nodes have exchanged."""

    def metric(self, row: MetricRow) -> None:
        """Handle a number that a program of a workload has printed."""

    def usage(self, usage: Usage) -> None:
        """Handle a reading of queues and containers, in a run that exports metrics."""

    def time_passed(self, emulated: float) -> None:
        """Show progress, at this many emulated seconds since the start of the training."""

    def show_on(self, file: TextIO) -> None:
        """Show output on ``file`` from now on: standard output becomes a log."""

    def commit(self) -> None:
        """Complete the files with everything received so far, before a checkpoint."""

    def close(self) -> None:
        """Close the sink. Idempotent."""
