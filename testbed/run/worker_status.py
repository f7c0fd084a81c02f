"""Notifies the parameter server of workers that ended or froze, which it would wait for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from testbed.errors import NodeError, RejectedError
from testbed.rpc import methods
from testbed.rpc.addresses import unix_address
from testbed.rpc.limits import ENVELOPE_BYTES, MessageLimits

if TYPE_CHECKING:
    from testbed.rpc.client import Connection

ANSWER_SECONDS = 10.0
"""Maximum wait for an answer of the parameter server. If that is on another host, an engine starts
a command for each connection."""


@dataclass
class WorkerStatusReporter:
    """Reports exits and freezes of workers to the parameter server; repeats unanswered reports."""

    socket: Path  # the parameter server's socket for the controller
    token: str  # the controller's token
    _pending: dict[int, str] = field(default_factory=dict)
    _sent: dict[int, str] = field(default_factory=dict)
    _frozen: dict[int, bool] = field(default_factory=dict)  # and whether a fault plans it
    _frozen_changes: dict[int, bool | None] = field(default_factory=dict)  # None: not frozen
    _delivery: _Delivery | None = None

    def add(self, worker: int, reason: str) -> None:
        """Register that a worker's process has exited unexpectedly, for this reason."""
        self._pending[worker] = reason

    def is_sent(self, worker: int) -> bool:
        """Return whether the parameter server was notified of its end."""
        return worker not in self._pending

    def set_frozen(self, workers: Mapping[int, bool]) -> None:
        """Set the frozen workers, these and no others, and whether a fault thaws each."""
        changed = {worker for worker, _ in workers.items() ^ self._frozen.items()}
        self._frozen_changes |= {worker: workers.get(worker) for worker in changed}
        self._frozen = dict(workers)

    def resend(self) -> None:
        """Forget what was sent: a new parameter server has been started."""
        self._end_delivery()
        self._pending = self._sent | self._pending
        self._frozen_changes = {**self._frozen, **self._frozen_changes}

    def send(self, *, wait: bool = False) -> None:
        """Send all reports, in a thread; a report that fails is sent again the next time.

        If the parameter server has ended, all fail: that is detected elsewhere, and makes no
        difference to the workers. A report that it rejects is among its own events.

        Args:
            wait: until all reports have been answered or have failed.
        """
        if self._delivery is not None and self._delivery.is_alive() and not wait:
            return
        self._end_delivery()
        if self._pending or self._frozen_changes:
            exits, changes = tuple(self._pending.items()), tuple(self._frozen_changes.items())
            self._delivery = _Delivery(self.socket, self.token, exits, changes)
            self._delivery.start()
        if wait:
            self._end_delivery()

    def _end_delivery(self) -> None:
        """Await the delivery that was begun, if any, and register what it has delivered."""
        if self._delivery is None:
            return
        self._delivery.join()
        for worker in self._delivery.exits_answered:
            self._sent[worker] = self._pending.pop(worker)
        for worker, thaws in self._delivery.changes_answered.items():
            if self._frozen_changes[worker] == thaws:  # else it has changed since
                del self._frozen_changes[worker]
        self._delivery = None


class _Delivery(Thread):
    """Sends reports, one after the other, until one fails.

    Attributes:
        exits_answered: the workers whose exits the parameter server knows.
        changes_answered: the same for freezes, and what was reported.
    """

    def __init__(
        self,
        socket: Path,
        token: str,
        exits: Iterable[tuple[int, str]],
        changes: Iterable[tuple[int, bool | None]],
    ) -> None:
        super().__init__(name="worker status", daemon=True)
        self._socket, self._token, self._exits, self._changes = socket, token, exits, changes
        self.exits_answered: list[int] = []
        self.changes_answered: dict[int, bool | None] = {}

    def run(self) -> None:
        from testbed.rpc._pb import ps_pb2
        from testbed.rpc.client import Connection

        with (
            suppress(NodeError, FileNotFoundError),
            unix_address(self._socket) as address,
            Connection(
                address,
                token=self._token,
                limits=MessageLimits(ENVELOPE_BYTES),
                patience_seconds=0.0,
            ) as connection,
        ):
            for worker, reason in self._exits:
                request = ps_pb2.RemoveRequest(worker=worker, reason=reason)
                _call(connection, methods.REMOVE, request.SerializeToString())
                self.exits_answered.append(worker)
            for worker, thaws in self._changes:
                change = ps_pb2.SilenceRequest(
                    worker=worker, silent=thaws is not None, thaws=bool(thaws)
                )
                _call(connection, methods.SILENCE, change.SerializeToString())
                self.changes_answered[worker] = thaws


def _call(connection: Connection, method: str, request: bytes) -> None:
    with suppress(RejectedError):
        connection.call(method, request, deadline_seconds=ANSWER_SECONDS)
