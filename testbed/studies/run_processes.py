"""Executes the runs of a sweep, each in a process forked from one that has imported everything.

Importing torch and the rest takes longer than a short run. That process is a fresh interpreter, as
the caller may have threads: ``python -m testbed.studies.run_processes DESCRIPTOR``, of its end of a
socket pair. Or it is forked from a caller that has imported this package, but nothing that computes
in threads. It exits when the caller does, and so do the runs.
"""

from __future__ import annotations

import gc
import importlib
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import IO, Any, NoReturn

from testbed.errors import INTERRUPTED, INVALID, HostError
from testbed.host import syscalls
from testbed.host.environment import python
from testbed.host.process import YOUNG_OBJECTS, end_with
from testbed.run.prepare import Request
from testbed.run.simulated import SimulationResources, carry_out, resume
from testbed.run.up import RunListener
from testbed.telemetry.folder import RunFolder

NEEDED = ("torch", "pandas", "pyarrow.parquet")
"""What a run imports when it needs it, apart from this package."""

Wait = Callable[[], object]

MOST_DESCRIPTORS = 2**20


@dataclass(frozen=True)
class StudyRunRequest:
    """Request to execute one run."""

    request: Request[Any]
    cpus: tuple[int, ...]  # CPUs that it may use; none if it may use all
    resumes: bool  # whether it resumes from its checkpoint
    simulated: SimulationResources  # what a simulated run uses


@dataclass(frozen=True)
class RunProcess:
    """The process of a run.

    Attributes:
        ended: a pidfd, readable when the process has ended.
    """

    ended: int
    _parent: socket.socket  # sends the exit status

    def terminate(self) -> None:
        """Send SIGTERM, unless it has ended."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.ended, signal.SIGTERM)

    def wait(self) -> int:
        """Wait until it has ended, and release it.

        Returns:
            The exit status of ``testbed up``; negative for the signal that killed it.
        """
        select.select([self.ended], [], [])
        os.close(self.ended)
        with self._parent:  # without a status if that process was killed, which terminates its runs
            return int(self._parent.recv(16) or -signal.SIGTERM)


@dataclass(frozen=True)
class RunStarter:
    """Starts processes of runs."""

    _channel: socket.socket  # to the process that forks them
    _log: IO[bytes]  # standard error of that process

    def start(self, request: StudyRunRequest, log: IO[bytes]) -> RunProcess:
        """Start the process of a run; ``log`` receives its standard error.

        Raises:
            HostError: it could not be started.
        """
        ours, its = socket.socketpair()
        with its, tempfile.TemporaryFile() as file, suppress(BrokenPipeError):
            pickle.dump(request, file)
            file.seek(0)
            descriptors = [file.fileno(), log.fileno(), its.fileno()]
            socket.send_fds(self._channel, [b"run"], descriptors)
        _, received, _, _ = socket.recv_fds(ours, 16, 1)
        if not received:
            ours.close()
            self._log.seek(0)
            said = self._log.read().decode(errors="replace").strip()
            raise HostError(f"cannot start the process of a run: {said or 'its parent was killed'}")
        return RunProcess(received[0], ours)


@contextmanager
def run_processes(environment: Mapping[str, str], *, forks: bool = False) -> Iterator[RunStarter]:
    """Start the process that forks those of the runs; at the end, terminate all that are left.

    Args:
        environment: of the runs.
        forks: whether that process is forked from this one, not a fresh interpreter.
    """
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with tempfile.TemporaryFile() as log, ours:
        with its:
            wait = (_fork if forks else _spawn)(its, log, environment)
        try:
            yield RunStarter(ours, log)
        finally:
            ours.close()
            wait()


def _spawn(its: socket.socket, log: IO[bytes], environment: Mapping[str, str]) -> Wait:
    """Start a fresh interpreter that serves one end of a channel; return what waits for its end."""
    return subprocess.Popen(
        python("testbed.studies.run_processes", str(its.fileno())),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=log,
        env=environment,
        pass_fds=(its.fileno(),),
    ).wait


def _fork(its: socket.socket, log: IO[bytes], environment: Mapping[str, str]) -> Wait:
    """Fork a process that serves one end of a channel; return what waits for its end."""
    pid = os.fork()
    if pid == 0:
        end_with(lambda: _become_parent(its, log, environment))
    return partial(os.waitpid, pid, 0)


def _become_parent(its: socket.socket, log: IO[bytes], environment: Mapping[str, str]) -> int:
    """Leave behind what is the caller's: connections, output, handlers, objects of its threads."""
    gc.freeze()
    null = os.open(os.devnull, os.O_RDWR)
    for target, source in enumerate((null, null, log.fileno())):
        os.dup2(source, target)
    kept = its.fileno()
    os.closerange(3, kept)
    os.closerange(kept + 1, MOST_DESCRIPTORS)
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False, errors="replace")  # noqa: SIM115
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(environment)
    return serve(its)


@dataclass
class Parent:
    """Forks a process for every request, and sends its exit status when it has ended."""

    channel: socket.socket  # requests arrive on it
    interrupt: Any  # the handler of SIGINT of the runs
    _going: dict[int, tuple[int, socket.socket]] = field(default_factory=dict)  # by pidfd

    def serve(self) -> int:
        """Serve until the other end of the channel is closed; terminate the runs that are left."""
        poller = select.poll()
        poller.register(self.channel, select.POLLIN)
        while True:
            for descriptor, _ in poller.poll():
                if descriptor in self._going:
                    poller.unregister(descriptor)
                    self._conclude(descriptor)
                elif (pidfd := self._fork_next()) is not None:
                    poller.register(pidfd, select.POLLIN)
                else:
                    return self._terminate_all()

    def _fork_next(self) -> int | None:
        data, descriptors, _, _ = socket.recv_fds(self.channel, 16, 3)
        if not data:
            return None
        request, log, said = descriptors
        asking = socket.socket(fileno=said)
        me, pid = os.getpid(), os.fork()
        if pid == 0:
            self._become_run(request, log, me)
        os.close(request)
        os.close(log)
        pidfd = os.pidfd_open(pid)
        self._going[pidfd] = pid, asking
        socket.send_fds(asking, [b"pidfd"], [pidfd])
        return pidfd

    def _become_run(self, request: int, log: int, parent: int) -> NoReturn:
        signal.signal(signal.SIGINT, self.interrupt)
        os.dup2(log, sys.stderr.fileno())
        self.channel.close()
        for pidfd, (_, asking) in self._going.items():
            os.close(pidfd)
            asking.close()
        end_with(lambda: execute(request, parent))

    def _conclude(self, pidfd: int) -> None:
        pid, asking = self._going.pop(pidfd)
        os.close(pidfd)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with asking, suppress(BrokenPipeError):  # the caller has ended
            asking.send(str(status).encode())

    def _terminate_all(self) -> int:
        for pidfd in self._going:
            signal.pidfd_send_signal(pidfd, signal.SIGTERM)
        for pidfd in list(self._going):
            self._conclude(pidfd)
        return 0


def execute(descriptor: int, parent: int) -> int:
    """Execute the request in a file; return the exit status of ``testbed up``."""
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it ended before PDEATHSIG was set
        return INTERRUPTED
    with open(descriptor, "rb") as file:
        asked: StudyRunRequest = pickle.load(file)
    if asked.cpus:
        os.sched_setaffinity(0, asked.cpus)
    request = asked.request
    try:
        if asked.resumes:
            folder = RunFolder(request.runs / str(request.name))
            valid = resume(folder, RunListener(), environment=os.environ, resources=asked.simulated)
        else:
            valid = carry_out(request, RunListener(), resources=asked.simulated)
        return 0 if valid else INVALID
    except KeyboardInterrupt:
        return INTERRUPTED


def serve(channel: socket.socket) -> int:
    """Import what runs need, then serve the requests of the caller."""
    # Ctrl-C reaches the whole process group; this process ends after the runs.
    interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.set_threshold(YOUNG_OBJECTS)
    for name in NEEDED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    return Parent(channel, interrupt).serve()


if __name__ == "__main__":
    end_with(lambda: serve(socket.socket(fileno=int(sys.argv[1]))))
