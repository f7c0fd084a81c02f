"""The server's state per worker, and the checks that depend on it."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from testbed.algorithms.base import Orders, Update
from testbed.algorithms.frame.effects import NO_STANDING, StandingOrders
from testbed.errors import RejectedError
from testbed.payloads.notes import is_finite

NOT_FINITE = "a value is NaN or infinite"


class NotFiniteError(RejectedError):
    """A push with values that are NaN or infinite."""


@dataclass(frozen=True)
class NoCrashes:
    """Never crashes a worker."""

    def __call__(self, worker: int) -> bool:
        return False


@dataclass
class WorkerSession:
    """The state kept for one worker.

    Attributes:
        sequence: number of the last accepted push, 0 before the first.
        pulled: version of the reply that its next push builds on; None before the first reply, and
            between an accepted push and its reply.
        silent: whether the worker is known to send nothing, though it has not left.
        crashed: whether it is silent for good.
        since: when the server began to wait for it; infinite while the worker waits for the server.
    """

    worker: int
    sequence: int = 0
    pulled: int | None = None
    standing: StandingOrders = NO_STANDING
    silent: bool = False
    crashed: bool = False
    since: float = inf

    def heard(self) -> None:
        """Mark the worker as active, unless it has crashed: the message is older than the crash."""
        self.silent = self.crashed
        self.since = self.since if self.crashed else inf

    def lost(self, sequence: int) -> None:
        """Forget its pushes up to this one, which were lost with the previous server."""
        self.sequence, self.pulled, self.silent = sequence, None, False

    def order(self, new: Orders, now: float) -> StandingOrders:
        """Merge new orders; return the current orders."""
        orders = self.standing.orders.replaced_by(new)
        if orders != self.standing.orders:
            self.standing = StandingOrders(self.standing.number + 1, orders, now)
        return self.standing

    def check_order(self, sequence: int, update: Update, *, version: int) -> None:
        """Refuse a push that is out of order, with the model at ``version``.

        Raises:
            RejectedError: a version from the future, a push without a pull, a sequence number out
                of order, or no samples.
        """
        name = f"w{self.worker}"
        if update.version > version:
            raise RejectedError(
                f"{name}: version {update.version} is from the future, the model is at {version}"
            )
        if sequence not in (self.sequence, self.sequence + 1) or sequence < 1:
            raise RejectedError(
                f"{name}: push {sequence} is out of order, expected {self.sequence + 1}"
            )
        if sequence == self.sequence:
            return  # a repeat: already checked and accepted
        if self.pulled is None or update.version != self.pulled:
            raise RejectedError(
                f"{name}: the push builds on version {update.version}, the worker's last pull "
                f"brought {'none' if self.pulled is None else self.pulled}"
            )
        if update.steps and update.samples < 1:
            raise RejectedError(f"{name}: {update.samples} samples, expected at least 1")

    def check_payload(self, update: Update, *, size: int) -> None:
        """Refuse a payload that does not fit a model of ``size`` entries.

        Raises:
            RejectedError: it does not fit.
            NotFiniteError: it fits, but holds NaN or infinities.
        """
        if flaw := update.payload.flaw(size):
            raise RejectedError(f"w{self.worker}: {flaw}")
        if not (update.payload.finite and is_finite(update.note)):
            raise NotFiniteError(f"w{self.worker}: {NOT_FINITE}")
