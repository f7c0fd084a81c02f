"""What becomes of requests: rows of the spool for updates in the model, sums for the others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field

from testbed.algorithms.base import Applied
from testbed.frame.record import UpdateRecord
from testbed.roles.clock import Clock
from testbed.rpc.messages import Push
from testbed.telemetry.spool import SpoolWriter


@dataclass
class Tally:
    """Pushes that are no rows, by what became of them, and how requests were served.

    Attributes:
        repeated: came again after a lost connection, and were not applied again.
        repeated_bytes: their payload.
        dropped: came after the end.
        dropped_bytes: their payload.
        served: requests that took their turn at a server that takes time for each.
        served_late: those that were served later than the one behind them should have been.
    """

    repeated: int = 0
    repeated_bytes: int = 0
    dropped: int = 0
    dropped_bytes: int = 0
    served: int = 0
    served_late: int = 0


@dataclass
class Record:
    """Keeps the books of the parameter server.

    Attributes:
        spool: where the rows go.
        clock: of the training.
        tally: see Tally.
        updates: see UpdateRecord.
    """

    spool: SpoolWriter
    clock: Clock
    tally: Tally = field(default_factory=Tally)
    updates: UpdateRecord = field(init=False)

    def __post_init__(self) -> None:
        self.updates = UpdateRecord(self.spool.append)

    def accepted(self, push: Push) -> None:
        """A push was accepted just now."""
        self.updates.accepted(
            push.worker,
            push.sequence,
            update=push.update,
            payload_bytes=push.payload_bytes,
            timing=push.timing,
        )

    def applied(self, applied: Iterable[Applied]) -> None:
        """These updates are in the model from now on."""
        elapsed = self.clock.elapsed or 0.0
        for one in applied:
            self.updates.enter(one, now=self.clock.emulated(elapsed), elapsed=elapsed)

    def ignored(self, push: Push, *, late: bool) -> None:
        """A push was not accepted: it came after the end (late), or not for the first time."""
        if late:
            self.tally.dropped += 1
            self.tally.dropped_bytes += push.payload_bytes
        else:
            self.tally.repeated += 1
            self.tally.repeated_bytes += push.payload_bytes

    def served(self, *, late: bool) -> None:
        """A request has had its turn; late if the host was not fast enough for it."""
        self.tally.served += 1
        self.tally.served_late += late

    def totals(self) -> dict[str, int]:
        """All sums, by name; what no round was complete for at the end counts as dropped."""
        sums = asdict(self.tally)
        sums["dropped"] += self.updates.pending
        sums["dropped_bytes"] += self.updates.pending_bytes
        return {
            "applied": self.updates.applied,
            "applied_bytes": self.updates.applied_bytes,
            **sums,
        }
