"""Whoever is told of a run while it goes on: its folder, the console, an exporter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from testbed.events.entry import Entry
from testbed.events.rows import LinkRow, Rows, TrafficRow
from testbed.events.usage import Usage


class Sink:
    """Is told everything, and overrides what it cares for. It must return quickly."""

    def event(self, entry: Entry) -> None:
        """Something has happened."""

    def updates(self, rows: Rows, *, now: float) -> None:
        """New rows of the record of updates, in their order, at ``now`` steady seconds.

        None of them lets time pass.
        """

    def traffic(self, row: TrafficRow) -> None:
        """The kernel's counters and the host were read."""

    def links(self, rows: Sequence[LinkRow]) -> None:
        """What links carried that follow recordings, over the last second."""

    def usage(self, usage: Usage) -> None:
        """Queues and containers were read, of a run whose metrics somebody wants."""

    def time_passed(self, emulated: float) -> None:
        """So many emulated seconds of the training are over: a moment to show how it goes."""

    def show_on(self, file: TextIO) -> None:
        """Standard output becomes a log: what is shown of the run goes to ``file`` from now on."""

    def commit(self) -> None:
        """Put in its place what was told so far: a checkpoint is made of this moment."""

    def close(self) -> None:
        """Nothing more will come. Doing it twice is harmless."""
