"""The record of requests: spool rows for applied updates, sums for the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import ClassVar

from testbed.algorithms.base import Applied
from testbed.algorithms.frame.record import UpdateRecord
from testbed.roles.clock import EmulatedClock
from testbed.rpc.messages import PushMessage
from testbed.telemetry.events import EventLog
from testbed.telemetry.ps_events import Done
from testbed.telemetry.spool import SpoolWriter


class Record(UpdateRecord):
    """Records the parameter server's requests.

    Attributes:
        spool: receives the rows.
        log: receives what the workers of a round have found.
        tally: sums of pushes without a row and of served requests; by the names in ``Done``.
        largest_gap_seconds: the longest pause of any node, real.
    """

    STATE: ClassVar = (*UpdateRecord.STATE, "tally")

    def __init__(self, spool: SpoolWriter, clock: EmulatedClock, log: EventLog) -> None:
        super().__init__(spool.append, spool.streamed)
        self.spool, self.clock, self.log = spool, clock, log
        self.tally: Counter[str] = Counter()
        self.largest_gap_seconds = 0.0

    def enter_all(self, applied: Iterable[Applied]) -> None:
        """Record updates that were applied now."""
        elapsed = self.clock.elapsed or 0.0
        for one in applied:
            self.enter(one, now=self.clock.emulated(elapsed), elapsed=elapsed)
        if found := self.end_round(self.clock.emulated(elapsed)):
            self.log.write(found)

    def ignored(self, push: PushMessage, *, late: bool) -> None:
        """Record a push that was not accepted: it came after the end (late), or was a repeat."""
        what = "dropped" if late else "repeated"
        self.tally[what] += 1
        self.tally[f"{what}_bytes"] += push.payload_bytes

    def lost(self, push: PushMessage, updates: int) -> None:
        """Record a push built on a lost model, and the number of its worker's lost updates."""
        self.tally["lost"] += updates
        self.tally["lost_bytes"] += push.payload_bytes

    def served(self, *, late: bool) -> None:
        """Record a served request; late if the host was too slow for it."""
        self.tally["served"] += 1
        self.tally["served_late"] += late

    def done(self, *, evaluated: bool) -> Done:
        """Return all sums; updates of an incomplete last round count as dropped."""
        sums = self.tally + Counter(dropped=self.pending, dropped_bytes=self.pending_bytes)
        return Done(
            evaluated,
            self.applied,
            self.applied_bytes,
            largest_gap_seconds=self.largest_gap_seconds,
            **sums,
        )
