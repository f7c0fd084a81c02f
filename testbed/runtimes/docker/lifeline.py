"""Starts a run's agent in a container, and ties the run to this process.

The agent listens at ``control/lifeline.sock``. This process connects, sends "commit", and hands
over the run's lock; before that the agent creates nothing. The connection is the lifeline: when it
ends, the agent does with the run what this process last requested.
"""

from __future__ import annotations

import os
import shutil
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from testbed.errors import HostError, NodeError, TestbedError
from testbed.host.process import Process, has_ended
from testbed.host.reports import ReportPipe, last_lines
from testbed.host.sockets import pid_of_listener, short_path
from testbed.runtimes.agent.first_process import FOLDER as COPIES
from testbed.runtimes.agent.mark import remove_mark
from testbed.runtimes.agent.settings import (
    AGENT_LOG,
    AGENT_SOCKET,
    COMMIT,
    LIFELINE_SOCKET,
    MARK,
    OWN_FAILURE,
)
from testbed.runtimes.base import Lifeline, Start
from testbed.runtimes.docker.containers import SECCOMP, Container
from testbed.runtimes.docker.engine import answering, connect
from testbed.runtimes.docker.lifecycle import (
    exit_status_of_agent,
    last_output,
    make,
    pid_of,
    remove_run,
)
from testbed.runtimes.lock import POLL_SECONDS, take_lock
from testbed.telemetry.folder import RunFolder

if TYPE_CHECKING:
    from docker import APIClient

END_SECONDS = 10.0
NOTICE_SECONDS = 0.5
"""A process ends at most this long after its sockets were closed."""


@dataclass
class DockerLifeline(Lifeline):
    """Implements Lifeline, which documents the methods."""

    _socket: socket.socket | None = None
    _pid: int = 0
    _pidfd: int | None = None

    @classmethod
    def of(cls, folder: RunFolder) -> Self:
        """Lock a run that is about to be started."""
        return cls(folder, _prepare(folder))

    def begin(self, engine: APIClient, agent: Container, *, start: Start) -> Self:
        """Create the agent's container, hand the run to it, and wait until it answers."""
        with self.undone_on_failure():
            self._take_hold(engine, agent, start)
        return self

    def stop(self) -> None:
        self._hang_up()
        with connect() as engine:
            remove_run(engine, self.folder)
        if self._pidfd is not None and not has_ended(self._pidfd, END_SECONDS):
            raise HostError(f"the agent (process {self._pid}) was killed but does not end.")
        clear(self.folder)

    def _send(self, data: bytes) -> None:
        if self._socket is None:
            raise BrokenPipeError
        self._socket.sendall(data)

    def explain(self) -> TestbedError | None:
        ended = self._pidfd is None or has_ended(self._pidfd, NOTICE_SECONDS)
        try:
            with connect() as engine:
                if not ended or exit_status_of_agent(engine, self.folder) == OWN_FAILURE:
                    return None
        except HostError as silence:
            return silence
        return NodeError(
            f"its container was stopped, killed or removed, or the {answering()} engine was "
            "restarted."
        )

    def close(self) -> None:
        super().close()
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None

    def _take_hold(self, engine: APIClient, agent: Container, start: Start) -> None:
        made: list[str] = []
        deadline = time.monotonic() + start.deadline_seconds
        make(engine, agent, made)
        peer = self._socket = self._reach(engine, made[0], deadline=deadline)
        self._pid = _agent_behind(peer)
        self._pidfd = Process.of(self._pid).open()
        assert self._lock is not None
        socket.send_fds(peer, [COMMIT], [self._lock])
        log = self.folder.log(AGENT_LOG)
        reports = ReportPipe(peer.fileno(), writer="the agent", log=log)
        with start.waiting():
            reports.expect("ready", deadline=deadline)

    def _reach(self, engine: APIClient, identity: str, *, deadline: float) -> socket.socket:
        """Connect to the agent as soon as it listens."""
        while True:
            alive = pid_of(engine, identity) is not None
            peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                with short_path(self.folder.control / LIFELINE_SOCKET) as name:
                    peer.connect(name)
                return peer
            except (FileNotFoundError, ConnectionRefusedError):
                peer.close()
            except BaseException:
                peer.close()
                raise
            if not alive or time.monotonic() > deadline:
                how = "does not listen in time" if alive else "ended before it listened"
                log = self.folder.log(AGENT_LOG)
                said = last_lines(log) if log.stat().st_size else last_output(engine, identity)
                raise NodeError(f"the agent: {how}.{said}")
            time.sleep(POLL_SECONDS)

    def _hang_up(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def clear(folder: RunFolder) -> None:
    """Remove the files that a run's agent has left in the folder."""
    remove_mark(folder.control / MARK)
    for name in (AGENT_SOCKET, LIFELINE_SOCKET, SECCOMP):
        (folder.control / name).unlink(missing_ok=True)
    shutil.rmtree(folder.control / COPIES, ignore_errors=True)  # there are none without images
    folder.discard_records()


def _prepare(folder: RunFolder) -> int:
    """Create what the agent needs in the run folder; return the run's lock."""
    try:
        lock = take_lock(folder)
    except OSError as error:
        raise HostError(
            f"{error.filename or folder.path}: {error.strerror}; the agent cannot be started."
        ) from None
    clear(folder)
    folder.log(AGENT_LOG).touch()  # owned by this user, not by the agent
    return lock


def _agent_behind(peer: socket.socket) -> int:
    """Return the pid of the agent at the other end, which must be visible here to be watched."""
    pid = pid_of_listener(peer)
    if pid == 0:
        raise HostError(
            f"the {answering()} engine's processes cannot be seen from here: it runs outside of "
            "this container.",
            hint="Run testbed on the engine's host, or in a container with --pid=host.",
        )
    return pid
