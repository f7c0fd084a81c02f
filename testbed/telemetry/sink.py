"""The recipients of a run's events and measurements: its folder, the console, an exporter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from testbed.telemetry.entry import Entry
from testbed.telemetry.rows import Reading, Rows
from testbed.values.usage import Usage


class Sink:
    """Receives everything; subclasses override what they need. Methods must return quickly."""

    def event(self, entry: Entry) -> None:
        """Handle an event."""

    def updates(self, rows: Rows, *, now: float) -> None:
        """Handle new rows of the record of updates, in order, at ``now`` steady seconds.

        Without rows, only time passes.
        """

    def readings(self, rows: Sequence[Reading]) -> None:
        """Handle rows of tables other than updates: of traffic, links, nodes or metrics."""

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
