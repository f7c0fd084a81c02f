"""What becomes of requests: rows of the spool for updates in the model, sums for the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from testbed.algorithms.base import Applied
from testbed.events.kinds import Done
from testbed.frame.record import UpdateRecord
from testbed.roles.clock import EmulatedClock
from testbed.rpc.messages import PushMessage
from testbed.telemetry.spool import SpoolWriter


@dataclass
class Record:
    """Keeps the books of the parameter server.

    Attributes:
        spool: where the rows go.
        tally: pushes that are no rows, and how requests were served; by the names in ``Done``.
        largest_gap_seconds: the longest that a node's own time stood still, real.
    """

    spool: SpoolWriter
    clock: EmulatedClock
    tally: Counter[str] = field(default_factory=Counter)
    largest_gap_seconds: float = 0.0

    def __post_init__(self) -> None:
        self.updates = UpdateRecord(self.spool.append, self.spool.streamed)

    def accepted(self, push: PushMessage) -> None:
        """A push was accepted just now."""
        self.updates.accepted(
            push.worker,
            push.sequence,
            update=push.update,
            payload_bytes=push.payload_bytes,
            timing=push.timing,
            saturated=push.saturated,
            intake=push.intake,
        )

    def applied(self, applied: Iterable[Applied]) -> None:
        """These updates are in the model from now on."""
        elapsed = self.clock.elapsed or 0.0
        for one in applied:
            self.updates.enter(one, now=self.clock.emulated(elapsed), elapsed=elapsed)

    def ignored(self, push: PushMessage, *, late: bool) -> None:
        """A push was not accepted: it came after the end (late), or not for the first time."""
        what = "dropped" if late else "repeated"
        self.tally[what] += 1
        self.tally[f"{what}_bytes"] += push.payload_bytes

    def lost(self, push: PushMessage, updates: int) -> None:
        """A push was built on a model that was lost, after so many others of its worker's."""
        self.tally["lost"] += updates
        self.tally["lost_bytes"] += push.payload_bytes

    def served(self, *, late: bool) -> None:
        """A request has had its turn; late if the host was not fast enough for it."""
        self.tally["served"] += 1
        self.tally["served_late"] += late

    def done(self, *, evaluated: bool) -> Done:
        """All sums; what no round was complete for at the end counts as dropped."""
        updates = self.updates
        sums = self.tally + Counter(dropped=updates.pending, dropped_bytes=updates.pending_bytes)
        return Done(
            evaluated,
            updates.applied,
            updates.applied_bytes,
            largest_gap_seconds=self.largest_gap_seconds,
            **sums,
        )
