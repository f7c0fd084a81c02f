"""What becomes of requests: rows of the spool for those that were applied, sums for the others."""

from __future__ import annotations

from dataclasses import dataclass, field

from testbed.algorithms.base import Applied
from testbed.roles.clock import Clock
from testbed.rpc.messages import Push
from testbed.telemetry.spool import SpoolWriter


@dataclass
class Tally:
    """Pushes and their payload, by what became of them, and how requests were served.

    Attributes:
        applied: how many were applied.
        applied_bytes: their payload.
        repeated: came again after a lost connection, and were not applied again.
        repeated_bytes: their payload.
        dropped: came after the end.
        dropped_bytes: their payload.
        served: requests that took their turn at a server that takes time for each.
        served_late: those that were served later than the one behind them should have been.
    """

    applied: int = 0
    applied_bytes: int = 0
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
        spool: where applied updates go.
        clock: of the training.
        tally: see Tally.
    """

    spool: SpoolWriter
    clock: Clock
    tally: Tally = field(default_factory=Tally)
    _down_bytes: dict[int, int] = field(default_factory=dict)  # of each worker's last reply

    def replied(self, worker: int, payload_bytes: int) -> None:
        """A worker got a model of so many bytes."""
        self._down_bytes[worker] = payload_bytes

    def applied(self, push: Push, applied: Applied) -> None:
        """A push was applied just now."""
        self.tally.applied += 1
        self.tally.applied_bytes += push.payload_bytes
        self.spool.append(self._row(push, applied))

    def ignored(self, push: Push, *, late: bool) -> None:
        """A push was not applied: it came after the end (late), or not for the first time."""
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

    def _row(self, push: Push, applied: Applied) -> tuple[float, ...]:
        """In the order of ``spool.UPDATE``."""
        elapsed = self.clock.elapsed or 0.0
        timing = push.timing
        return (
            self.clock.emulated(elapsed),
            elapsed,
            push.worker,
            push.sequence,
            push.update.version,
            applied.version,
            applied.staleness,
            applied.sigma_mean,
            applied.sigma_max,
            applied.step_scale,
            push.update.samples,
            push.update.payload.values.size,
            push.payload_bytes,
            self._down_bytes.get(push.worker, 0),
            timing.compute,
            timing.late,
            timing.think,
            timing.transfer,
            timing.blocked,
        )
