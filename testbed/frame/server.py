"""The server's loop: joins, pushes, releases and the stop rule, around an algorithm's server half.

One thread calls it. Nothing blocks: a push returns the replies that may go out because of it, and
a worker that must wait simply is not among them.

A training that has diverged never recovers, so it ends too: when the evaluator finds a loss that is
not finite, or when more than half of the workers have pushed values that are not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from testbed.algorithms.base import Applied, Orders, Reply, ServerHalf, Update
from testbed.compress.payload import Dense, Indices, Payload
from testbed.errors import RejectedError


@dataclass(frozen=True)
class StopRule:
    """When training ends; what is None does not end it.

    Attributes:
        updates: exactly this many updates are applied.
        time: emulated seconds since the start.
        accuracy: top-1 share of a measured evaluation, in [0, 1].
    """

    updates: int | None = None
    time: float | None = None
    accuracy: float | None = None


@dataclass(frozen=True)
class Release:
    """A reply that may go out now.

    Attributes:
        worker: whom it goes to.
        reply: the model; None tells the worker that training has ended.
    """

    worker: int
    reply: Reply | None


@dataclass
class Seat:
    """What the server remembers of one worker.

    Attributes:
        sequence: number of the last push that was applied, 0 before the first.
        pulled: version of the reply that its next push builds on; None before the first reply, and
            from a push that was applied to the reply that answers it.
    """

    sequence: int = 0
    pulled: int | None = None


@dataclass
class Server:
    """Keeps the order of pushes and applies each exactly once.

    Attributes:
        half: the algorithm's server half.
        stop: when training ends.
        finished: why it ended, or empty while it goes on.
    """

    half: ServerHalf
    stop: StopRule
    finished: str = ""
    _seats: dict[int, Seat] = field(default_factory=dict, init=False)
    _waiting: dict[int, None] = field(default_factory=dict, init=False)  # in order of asking
    _diverged: set[int] = field(default_factory=set, init=False)  # pushed what is not finite

    @property
    def version(self) -> int:
        """Updates applied so far."""
        return self.half.version

    def join(self, worker: int) -> None:
        """A worker takes part; one that joins again keeps its place."""
        self._seats.setdefault(worker, Seat())
        self.half.join(worker)

    def leave(self, worker: int, now: float) -> Sequence[Release]:
        """A worker is gone. Returns the replies that others no longer wait for."""
        if self._seats.pop(worker, None) is None:
            return ()
        self._waiting.pop(worker, None)
        self.half.leave(worker)
        return self._releases(now)

    def pull(self, worker: int, now: float) -> Sequence[Release]:
        """A worker asks for the model without pushing."""
        self._seat(worker)
        self._watch_clock(now)
        self._waiting[worker] = None
        return self._releases(now)

    def check(self, worker: int, sequence: int, update: Update) -> None:
        """Refuse an update that must not be applied. Changes nothing.

        Raises:
            RejectedError: an unknown worker, a version from the future, a push without a pull, a
                sequence number out of order, indices that are out of range, unsorted or repeated,
                sizes that do not fit the model, or values that are not finite. The last two are not
            looked at once training has ended, as nothing is applied any more.
        """
        seat = self._seat(worker)
        if update.version > self.version:
            raise RejectedError(
                f"w{worker}: version {update.version} is from the future, the model is at "
                f"{self.version}"
            )
        if sequence not in (seat.sequence, seat.sequence + 1) or sequence < 1:
            raise RejectedError(
                f"w{worker}: push {sequence} is out of order, expected {seat.sequence + 1}"
            )
        if sequence == seat.sequence:
            return  # a repeat: it was checked and applied when it first came
        if seat.pulled is None or update.version != seat.pulled:
            raise RejectedError(
                f"w{worker}: the push builds on version {update.version}, the worker's last pull "
                f"brought {'none' if seat.pulled is None else seat.pulled}"
            )
        if update.samples < 1:
            raise RejectedError(f"w{worker}: {update.samples} samples, expected at least 1")
        if self.finished:
            return
        if flaw := _flaw(update.payload, self.half.parameters.size):
            raise RejectedError(f"w{worker}: {flaw}")
        if not np.isfinite(update.payload.values).all():
            raise _NotFiniteError(f"w{worker}: a value is NaN or infinite")

    def push(
        self, worker: int, sequence: int, *, update: Update, now: float
    ) -> tuple[Applied | None, Sequence[Release]]:
        """Apply an update and say which replies may go out.

        A repeat of the last sequence number, and any push after the end, is not applied.

        Returns:
            What applying it did, or None if it was not applied; and the released replies.

        Raises:
            RejectedError: see ``check``; nothing was applied.
        """
        try:
            self.check(worker, sequence, update)
        except _NotFiniteError:
            self._watch_divergence(worker)
            if not self.finished:
                raise
        self._watch_clock(now)
        seat = self._seat(worker)
        applied = None
        if not self.finished and sequence == seat.sequence + 1:
            applied = self.half.push(worker, update, now)
            seat.sequence, seat.pulled = sequence, None
            if self.stop.updates is not None and self.version >= self.stop.updates:
                self.finished = f"{self.version} updates applied"
        self._waiting[worker] = None
        return applied, self._releases(now)

    def tick(
        self, now: float, *, loss: float | None = None, accuracy: float | None = None
    ) -> tuple[Mapping[int, Orders], Sequence[Release]]:
        """Time passes, or the evaluator has measured.

        Returns:
            Orders that must reach workers at once, and the replies that may go out.
        """
        self._watch_clock(now)
        if not self.finished and loss is not None and not np.isfinite(loss):
            self.finished = f"diverged: loss is {loss} at version {self.version}"
        target = self.stop.accuracy
        if not self.finished and target is not None and accuracy is not None and accuracy >= target:
            self.finished = f"accuracy {accuracy:.4f} reached {target:g}"
        orders = {} if self.finished else self.half.tick(now, loss)
        return orders, self._releases(now)

    def _watch_clock(self, now: float) -> None:
        if not self.finished and self.stop.time is not None and now >= self.stop.time:
            self.finished = f"{self.stop.time:g} s of emulated time passed"

    def _watch_divergence(self, worker: int) -> None:
        """A worker's gradients are not finite: its data may be to blame, most workers' is not."""
        self._diverged.add(worker)
        refused, workers = len(self._diverged), len(self._diverged | self._seats.keys())
        if 2 * refused > workers:
            self.finished = (
                f"diverged: pushes of {refused} of {workers} workers are NaN or infinite at "
                f"version {self.version}"
            )

    def _seat(self, worker: int) -> Seat:
        try:
            return self._seats[worker]
        except KeyError:
            raise RejectedError(f"worker {worker} is unknown: it has not joined") from None

    def _releases(self, now: float) -> list[Release]:
        """All replies that may go out now, made before any further push is applied."""
        if self.finished:
            released = [Release(worker, None) for worker in self._waiting]
        else:
            ready = [worker for worker in self._waiting if self.half.ready(worker)]
            released = [Release(worker, self.half.pull(worker, now)) for worker in ready]
        for release in released:
            del self._waiting[release.worker]
            if release.reply is not None:
                self._seats[release.worker].pulled = release.reply.version
        return released


class _NotFiniteError(RejectedError):
    """A push with values that are NaN or infinite."""


def _flaw(payload: Payload, size: int) -> str:
    """Why a payload does not fit a model of ``size`` entries; empty if it does."""
    values = payload.values
    if isinstance(payload, Dense):
        if values.size != size:
            return f"{values.size} values for a model of {size}"
    elif payload.indices.size != values.size:
        return f"{payload.indices.size} indices with {values.size} values"
    elif not _ascending(payload.indices, size):
        return f"indices must increase strictly within [0, {size})"
    return ""


def _ascending(indices: Indices, size: int) -> bool:
    # Neighbours are compared, not subtracted: in int32 a difference can wrap to a positive one.
    if indices.size == 0:
        return True
    return bool(indices[0] >= 0 and indices[-1] < size and (indices[:-1] < indices[1:]).all())
