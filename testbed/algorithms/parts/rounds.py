"""Rounds: no worker continues before all members have pushed, left or reported a silent stream."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import isfinite
from typing import ClassVar

import numpy as np

from testbed.algorithms.base import Applied, C, Samples, ServerHalf, Update, expect
from testbed.errors import RejectedError
from testbed.payloads import Dense, Payload, Sparse, Vector
from testbed.payloads.notes import number


class RoundServer(ServerHalf[C]):
    """W ← W - Σ U / M once per round, with the U pushed in the round; then all continue.

    A worker's push counts in its round even if the worker leaves before the round is complete. A
    worker whose stream is silent waits for the round's end; if all are silent, there is no round,
    and nothing ends the wait.

    Attributes:
        PAYLOAD: the kind of payload that workers push.
    """

    PAYLOAD: ClassVar[type[Payload]] = Dense

    def __post_init__(self) -> None:
        self._members: set[int] = set()
        self._silent: set[int] = set()
        self._pushed: dict[int, Update] = {}

    def join(self, worker: int) -> None:
        """Wait for this worker too."""
        self._members.add(worker)

    def leave(self, worker: int, now: float) -> Sequence[Applied]:
        """Stop waiting for the worker."""
        self._members.discard(worker)
        self._silent.discard(worker)
        return self._close(now)

    def push(self, worker: int, update: Update, now: float) -> Sequence[Applied]:
        """Process a U, or the message of a silent stream; wait for the U of every worker."""
        if not update.steps:
            self._silent.add(worker)
            return self._close(now)
        self.check(update)
        self._pushed[worker] = update
        return self._close(now)

    def ready(self, worker: int) -> bool:
        """Return True once the worker's round is complete."""
        return worker not in self._silent and worker not in self._pushed

    def awaited(self) -> Collection[int]:
        """Return the members that have neither pushed nor reported a silent stream."""
        return self._members - self._pushed.keys() - self._silent

    def check(self, update: Update) -> None:
        """Refuse an update that a round cannot use.

        Raises:
            RejectedError: the payload is of another kind, or no sample of its own is behind it.
        """
        if own(update) < 1:
            raise RejectedError(f"{own(update)} samples of its own, expected at least 1")
        self.check_payload(update.payload)

    def check_payload(self, payload: Payload) -> None:
        """Refuse a payload that a round cannot use.

        Raises:
            RejectedError: the payload is of another kind or size.
        """
        expect(self.PAYLOAD, payload)

    def add(self, payload: Payload, total: Vector) -> None:
        """Add a U to ``total``."""
        total += expect(Dense, payload).values

    def total(self, round_: Sequence[Update]) -> Vector:
        """Σ U of a round, in the order of its workers, in float32."""
        total = np.zeros_like(self.parameters)
        for update in round_:
            self.add(update.payload, total)
        return total

    def mean(self, round_: Sequence[Update]) -> Vector:
        """Σ U / M: what a round subtracts from the model."""
        return self.total(round_) / np.float32(len(round_))

    def _close(self, now: float) -> Sequence[Applied]:
        """W ← W - Σ U / M, if the round is complete.

        The U are summed in the order of the workers, not of arrival: float sums depend on the
        order. Updates of the same round add no staleness to one another.
        """
        if self.awaited() or not self._pushed:
            return ()
        complete, self._pushed = sorted(self._pushed.items()), {}
        self.parameters -= self.mean([update for _, update in complete])
        self._silent.clear()
        version, self.version = self.version, self.version + len(complete)
        return [
            Applied(worker, version + place, staleness=version - update.version)
            for place, (worker, update) in enumerate(complete)
        ]


LEFT_OUT = "left_out"
"""Name in a straggler's note: samples of the epochs that it was to train for, and did not."""


def message(version: int, shared: Samples | None = None, **note: float) -> Update:
    """Create a message that does not change the model, such as ``silent``: no samples arrived."""
    return Update(Sparse.nothing(), version, samples=0, steps=0, note=note, shared=shared)


def own(update: Update) -> int:
    """Return b_i, what the update counts for in a mean: the samples of the worker's own.

    Those that others shared do not count; those that a straggler left out do, since all of its
    samples are behind its update, only in fewer epochs.
    """
    injected, left_out = (number(update.note, name) for name in ("injected", LEFT_OUT))
    more = left_out - injected
    return update.samples + (int(more) if isfinite(more) else 0)


def weighted(round_: Sequence[Update], size: int) -> Vector:
    """Return Σ b_i g_i / Σ b_j over a round, in the order of its workers, in float32."""
    total = sum(own(update) for update in round_)
    mean = np.zeros(size, np.float32)
    for update in round_:
        share, payload = np.float32(own(update) / total), update.payload
        if isinstance(payload, Sparse):
            mean[payload.indices] += share * payload.values
        else:
            mean += share * expect(Dense, payload).values
    return mean
