"""Notifies the parameter server of workers that ended or froze, which it would wait for."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.errors import NodeError, RejectedError
from testbed.rpc import methods
from testbed.rpc.addresses import unix_address
from testbed.rpc.limits import ENVELOPE_BYTES, MessageLimits

if TYPE_CHECKING:
    from testbed.rpc.client import Connection

ANSWER_SECONDS = 1.0
"""Maximum wait for an answer of the parameter server; meanwhile the run is not watched."""


@dataclass
class WorkerStatusReporter:
    """Reports exits and freezes of workers to the parameter server; repeats unanswered reports."""

    socket: Path  # the parameter server's socket for the controller
    token: str  # the controller's token
    answer_seconds: float = ANSWER_SECONDS  # how long to wait for an answer
    _pending: dict[int, str] = field(default_factory=dict)
    _sent: dict[int, str] = field(default_factory=dict)
    _frozen: set[int] = field(default_factory=set)
    _frozen_changes: dict[int, bool] = field(default_factory=dict)

    def add(self, worker: int, reason: str) -> None:
        """Register that a worker's process has exited unexpectedly, for this reason."""
        self._pending[worker] = reason

    def is_sent(self, worker: int) -> bool:
        """Return whether the parameter server was notified of its end."""
        return worker not in self._pending

    def set_frozen(self, workers: set[int]) -> None:
        """Set the frozen workers: these, and no others."""
        self._frozen_changes |= {worker: worker in workers for worker in workers ^ self._frozen}
        self._frozen = workers

    def resend(self) -> None:
        """Forget what was sent: a new parameter server has been started."""
        self._pending = self._sent | self._pending
        self._frozen_changes = dict.fromkeys(self._frozen, True) | self._frozen_changes

    def send(self) -> None:
        """Send all reports; a report that fails is sent again the next time.

        If the parameter server has ended, all fail: that is detected elsewhere, and makes no
        difference to the workers. A report that it rejects is among its own events.
        """
        if not self._pending and not self._frozen_changes:
            return
        from testbed.rpc._pb import ps_pb2
        from testbed.rpc.client import Connection

        with (
            suppress(NodeError, FileNotFoundError),
            unix_address(self.socket) as address,
            Connection(
                address,
                token=self.token,
                limits=MessageLimits(ENVELOPE_BYTES),
                patience_seconds=0.0,
            ) as connection,
        ):
            for worker, reason in list(self._pending.items()):
                request = ps_pb2.RemoveRequest(worker=worker, reason=reason)
                self._call(connection, methods.REMOVE, request.SerializeToString())
                self._sent[worker] = self._pending.pop(worker)
            for worker, silent in list(self._frozen_changes.items()):
                change = ps_pb2.SilenceRequest(worker=worker, silent=silent)
                self._call(connection, methods.SILENCE, change.SerializeToString())
                del self._frozen_changes[worker]

    def _call(self, connection: Connection, method: str, request: bytes) -> None:
        with suppress(RejectedError):
            connection.call(method, request, deadline_seconds=self.answer_seconds)
