"""Rounds over streams: a barrier that excludes workers with a silent stream."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from testbed.algorithms.base import Applied, C, Update, expect
from testbed.algorithms.parts.barrier import AveragingServer
from testbed.errors import RejectedError
from testbed.payloads import Dense, Sparse, Vector


def silent(version: int) -> Update:
    """Create the message of a worker that has no samples for this round."""
    return Update(Sparse.nothing(), version, samples=0, steps=0, note={"silent": 1.0})


class StreamServer(AveragingServer[C]):
    """A barrier without the workers that reported a silent stream; they wait for the round's end.

    If all workers are silent there is no round, and nothing ends the wait.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self._silent: set[int] = set()

    def leave(self, worker: int, now: float) -> Sequence[Applied]:
        """Stop waiting for the worker."""
        self._silent.discard(worker)
        return super().leave(worker, now)

    def push(self, worker: int, update: Update, now: float) -> Sequence[Applied]:
        """Process a gradient, or the message that there is none."""
        if not update.steps:
            self._silent.add(worker)
            return self._close()
        if own(update) < 1:
            raise RejectedError(f"{own(update)} samples of its own, expected at least 1")
        return super().push(worker, update, now)

    def ready(self, worker: int) -> bool:
        """Return True once the worker's round is complete."""
        return worker not in self._silent and super().ready(worker)

    def awaited(self) -> Collection[int]:
        """Return the members that have neither pushed nor reported a silent stream."""
        return self._members - self._pushed.keys() - self._silent

    def _close(self) -> Sequence[Applied]:
        applied = super()._close()
        if applied:
            self._silent.clear()
        return applied


def own(update: Update) -> int:
    """Return b_i, the samples from the worker's own stream, without those shared by others."""
    return update.samples - int(update.note.get("injected", 0))


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
