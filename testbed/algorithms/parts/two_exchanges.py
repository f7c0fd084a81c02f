"""Rounds of two exchanges: the workers agree on something before they push."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Sequence

from testbed.algorithms.base import Applied, Reply, Update
from testbed.algorithms.parts.data_parallel import DataParallelServer
from testbed.errors import RejectedError
from testbed.payloads import Payload


class TwoExchangesServer(DataParallelServer):
    """Waits for a message from all members, answers all with what follows from it, then closes.

    A message that comes when the answer exists has no part in it, and is answered at once: a worker
    may join during a round, or have lost the answer.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self._messages: dict[int, Payload] = {}
        self._answer: Payload | None = None
        self._asked: set[int] = set()  # workers that have sent a message and not yet pushed

    @property
    def answered(self) -> Payload:
        """The answer of this round, while its updates arrive."""
        assert self._answer is not None, "an update is refused before"
        return self._answer

    @abstractmethod
    def answer(self, messages: Sequence[Payload]) -> Payload:
        """Return the answer to the messages of a round, which are in the order of its workers."""

    @abstractmethod
    def check_message(self, payload: Payload) -> None:
        """Refuse a message that the answer cannot use.

        Raises:
            RejectedError: it is of another kind or size.
        """

    def join(self, worker: int) -> None:
        """Add a worker; it starts with the model, whatever it sent before."""
        super().join(worker)
        self._asked.discard(worker)
        self._messages.pop(worker, None)

    def leave(self, worker: int, now: float) -> Sequence[Applied]:
        """Stop waiting for the worker; its message still counts."""
        self._asked.discard(worker)
        return super().leave(worker, now)

    def push(self, worker: int, update: Update, now: float) -> Sequence[Applied]:
        """Process a message, or the update that follows its answer."""
        if update.steps:
            if worker not in self._asked or self._answer is None:
                raise RejectedError("an update before its message was answered")
            applied = super().push(worker, update, now)
            self._asked.discard(worker)
            return applied
        self.check_message(update.payload)
        self._asked.add(worker)
        if self._answer is None:
            self._messages[worker] = update.payload
        return self._close(now)

    def ready(self, worker: int) -> bool:
        """Return True once the answer exists, or the round is complete."""
        return self._answer is not None if worker in self._asked else super().ready(worker)

    def awaited(self) -> Collection[int]:
        """Return the members whose message is missing, or later, whose update is."""
        if self._answer is None:
            return self._members - self._messages.keys()
        return super().awaited()

    def pull(self, worker: int, now: float) -> Reply:
        """Return the answer to a worker that asked, or what follows from the last round."""
        if worker in self._asked and self._answer is not None:
            return Reply(self._answer, self.version)
        return super().pull(worker, now)

    def _close(self, now: float) -> Sequence[Applied]:
        """Make the answer if all messages are there; close the round if all updates are."""
        if self._answer is None and self._messages and not self.awaited():
            self._answer = self.answer([one for _, one in sorted(self._messages.items())])
            self._messages = {}
        applied = super()._close(now)
        if applied:
            self._answer = None
        return applied
