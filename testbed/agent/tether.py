"""What becomes of a run when its controller lets go of it, or dies.

Ended at once, unless the controller has said otherwise: *unattended*, the run goes on until its
parameter server ends, which is told so and ends when its training has; *kept*, until it is stopped.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from testbed.agent.nodes import Nodes
from testbed.agent.server import Server
from testbed.runtimes.base import Fate

LONGEST_WORDS = 256


@dataclass
class Tether:
    """The agent's end of the lifeline, once the run is committed.

    Attributes:
        descriptor: of the lifeline.
        server: stopped when the run is to end.
        nodes: of the run.
        fate: what becomes of the run when the lifeline ends.
    """

    descriptor: int
    server: Server
    nodes: Nodes
    fate: Fate = "ended"

    def __post_init__(self) -> None:
        self.server.watch(self.descriptor, lambda _: self._read())

    def _read(self) -> None:
        words: list[str] = []
        with suppress(
            ConnectionResetError
        ):  # a socket whose other end had not read all it was sent
            words = os.read(self.descriptor, LONGEST_WORDS).decode().split()
        if words:
            self.fate = words[-1]  # type: ignore[assignment]  # only a lifeline writes there
            return
        self.server.forget(self.descriptor)
        if self.fate == "ended":
            self.server.stop()
        elif self.fate == "unattended":
            self._leave_alone()

    def _leave_alone(self) -> None:
        """End with the parameter server, or with the last worker: nobody else would notice."""
        servers, workers = self.nodes.pids("ps"), self.nodes.pids("worker")
        if not servers or not workers:
            self.server.stop()
            return
        for pid in servers:
            os.kill(pid, signal.SIGHUP)
            self._react_to_end_of(pid, self.server.stop)
        for pid in workers:
            self._react_to_end_of(pid, self._look_for_workers)

    def _look_for_workers(self) -> None:
        self.nodes.reap()
        if not self.nodes.pids("worker"):
            self.server.stop()

    def _react_to_end_of(self, pid: int, react: Callable[[], None]) -> None:
        descriptor = os.pidfd_open(pid)

        def ended(_: int) -> None:
            self.server.forget(descriptor)
            os.close(descriptor)
            react()

        self.server.watch(descriptor, ended)
