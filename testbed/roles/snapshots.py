"""Copies of the model for the evaluator, made on request once the model is old enough."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from testbed.errors import RejectedError
from testbed.rpc.codec import encode_snapshot
from testbed.rpc.messages import Snapshot

MAX_TAKEN = 16  # snapshots on which a report may still arrive


@dataclass(frozen=True, eq=False)
class TrainingState(Snapshot):
    """The current state of the training; its model is only lent.

    Attributes:
        payload_up_bytes: payload of all applied updates.
        clients: what the workers of the last round have found.
    """

    payload_up_bytes: int = 0
    clients: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class _Poll:
    least_version: int
    least_time: float
    answer: asyncio.Future[bytes]

    def due(self, version: int, time: float) -> bool:
        return version >= self.least_version and time >= self.least_time


class Known(NamedTuple):
    """What the parameter server knows of a snapshot, which the evaluator does not."""

    payload_up_bytes: int
    clients: Mapping[str, float]


class Snapshots:
    """Answers the evaluator's long polls.

    Attributes:
        final_taken: set when the final snapshot was sent.
        concluded: set by the caller when it was evaluated.
    """

    def __init__(self) -> None:
        self.final_taken = asyncio.Event()
        self.concluded = asyncio.Event()
        self._polls: list[_Poll] = []
        # Their payload_up_bytes and clients; None once reported.
        self._taken: OrderedDict[tuple[int, float, bool], Known | None] = OrderedDict()
        self._wanted: deque[bytes] = deque()
        self._takes_over = False

    def take_over(self) -> None:
        """Expect reports on snapshots of the previous server, which has died."""
        self._takes_over = True

    @property
    def waiting(self) -> bool:
        """Whether a poll is waiting."""
        return bool(self._polls)

    def ask(self, least_version: int, least_time: float) -> asyncio.Future[bytes]:
        """Return a future SnapshotReply: once both are reached or the training has ended.

        The caller must call ``answer_due`` immediately, after every change of the training, and at
        ``next_time``; and ``withdraw`` when the answer is no longer needed.
        """
        poll = _Poll(least_version, least_time, asyncio.get_running_loop().create_future())
        self._polls.append(poll)
        return poll.answer

    def withdraw(self, answer: asyncio.Future[bytes]) -> None:
        """Remove a poll; does nothing if it was answered."""
        self._polls = [poll for poll in self._polls if poll.answer is not answer]

    def want(self, state: TrainingState) -> None:
        """Queue this model for evaluation, before any other."""
        self._wanted.append(self._copy(state))

    def next_time(self, version: int) -> float:
        """Return when a poll is due even if the model does not change; infinity for never."""
        times = (poll.least_time for poll in self._polls if version >= poll.least_version)
        return min(times, default=inf)

    def answer_due(self, state: TrainingState) -> None:
        """Answer the polls that are due, with copies of the model."""
        for poll in list(self._polls):
            if self._wanted:
                answer = self._wanted.popleft()
            elif state.final or poll.due(state.version, state.time):
                answer = self._copy(state)
            else:
                continue
            self._polls.remove(poll)
            poll.answer.set_result(answer)

    def reported(self, version: int, time: float, *, final: bool) -> Known | None:
        """Return what is known of a reported snapshot.

        It is None for a repeated report, and if a previous server took it: that model is lost.

        Raises:
            RejectedError: no such snapshot was taken.
        """
        key = (version, time, final)
        if key not in self._taken and self._takes_over and not final:
            return None
        if key not in self._taken:
            kind = "final snapshot" if final else "snapshot"
            found = f"a report on a {kind} of version {version} at {time:g} s"
            raise RejectedError(f"{found}, which was not taken")
        known, self._taken[key] = self._taken[key], None
        return known

    def _copy(self, state: TrainingState) -> bytes:
        known = Known(state.payload_up_bytes, state.clients)
        self._taken.setdefault((state.version, state.time, state.final), known)
        if state.final:
            self.final_taken.set()
        if len(self._taken) > MAX_TAKEN:
            self._taken.popitem(last=False)
        return encode_snapshot(state)
