"""A process, identified so that a reused pid is never mistaken for it.

Functions that take a pid raise ProcessLookupError if there is no such process.
"""

from __future__ import annotations

import gc
import os
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from testbed.errors import NodeError, TestbedError

PROC = Path("/proc")
YOUNG = 50
"""Pids that are tried before all are listed."""

YOUNG_OBJECTS = 50_000
"""How many a command makes before the collector looks at them; Python's own number is 700."""


@dataclass(frozen=True)
class Process:
    """A process of this pid namespace; ``started`` is in clock ticks since boot."""

    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> Process:
        """Return the process that has this pid now."""
        return cls(pid, _start_time(pid))

    @classmethod
    def parse(cls, text: str) -> Process | None:
        """Parse the output of ``str``; return None for any other text."""
        match text.split():
            case [pid, started] if pid.isdecimal() and started.isdecimal():
                return cls(int(pid), int(started))
        return None

    def __str__(self) -> str:
        return f"{self.pid} {self.started}"

    def open(self) -> int | None:
        """Return a pidfd of exactly this process, or None if it has ended and been waited for."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return None
        # Compared only now that the pidfd is held: from here on the pid cannot be reused.
        with suppress(ProcessLookupError):
            if _start_time(self.pid) == self.started:
                return descriptor
        os.close(descriptor)
        return None

    def alive(self) -> bool:
        """Return whether it is still running; a zombie is not."""
        descriptor = self.open()
        if descriptor is None:
            return False
        try:
            return not has_ended(descriptor, 0)
        finally:
            os.close(descriptor)

    def kill(self) -> None:
        """Send SIGKILL, if it still exists."""
        self.send(signal.SIGKILL)

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if it still exists.

        Raises:
            NodeError: it belongs to another user.
        """
        descriptor = self.open()
        if descriptor is None:
            return
        try:
            with suppress(ProcessLookupError):  # it ended meanwhile, as requested
                signal.pidfd_send_signal(descriptor, number)
        except PermissionError:
            raise NodeError(
                f"process {self.pid} belongs to another user.",
                hint="Run this as the user who started it, or as root.",
            ) from None
        finally:
            os.close(descriptor)


def if_exists(pid: int) -> Process | None:
    """Return the process that has this pid now; None if there is none."""
    try:
        return Process.of(pid)
    except ProcessLookupError:
        return None


def ended_child() -> int | None:
    """Return a child that has ended and has not been waited for."""
    try:
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return None if found is None else found.si_pid


def has_ended(pidfd: int, timeout_seconds: float) -> bool:
    """Wait until the process behind a pidfd has ended; return False on timeout."""
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    return bool(poller.poll(timeout_seconds * 1000))


def end_with(work: Callable[[], int]) -> NoReturn:
    """Do the work and exit this process with its status, whatever happens.

    A TestbedError is printed as one message and gives its exit code; any other exception is printed
    with its traceback and gives 1.
    """
    status = 1
    try:
        status = work()
    except TestbedError as error:
        print(error, file=sys.stderr)  # noqa: T201 - the node's log
        status = error.exit_code
    except SystemExit as request:
        status = request.code if isinstance(request.code, int) else int(request.code is not None)
    finally:
        # Never return from here: a fork must not continue with the work of its parent.
        if sys.exc_info()[0] is not None:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status & 0xFF)


def end_command_with(work: Callable[[], int]) -> NoReturn:
    """Do the work of a command and exit this process with its status.

    A command imports a million objects, lives briefly and leaves little garbage: collecting it, and
    looking for more before the exit, would take a fifth of the time of the imports.
    """
    gc.set_threshold(YOUNG_OBJECTS)
    status = work()
    gc.freeze()
    sys.exit(status)


def every_pid() -> Iterator[int]:
    """Yield the pids of all processes in this pid namespace; each may end at any moment."""
    for entry in os.scandir(PROC):
        if entry.name.isdecimal():
            yield int(entry.name)


def namespace_pids(pid: int) -> tuple[int, ...]:
    """Return a process's pids in this pid namespace and in each nested one, outermost first."""
    for line in _read(pid, "status").splitlines():
        if line.startswith("NSpid:"):
            return tuple(int(word) for word in line.split()[1:])
    raise ProcessLookupError(pid)


def child_of(parent: int, inner: int) -> int | None:
    """Return the pid here of a child that is ``inner`` in its parent's pid namespace, or None."""
    with suppress(ProcessLookupError):
        depth = len(namespace_pids(parent)) - 1
        for pid in _youngest_first():  # it usually is one of them
            with suppress(ProcessLookupError, IndexError):  # ended, or further out
                if parent_of(pid) == parent and namespace_pids(pid)[depth] == inner:
                    return pid
    return None


def _youngest_first() -> Iterator[int]:
    """Yield every pid, and first the last ones given out: listing all takes long if there are many.

    Those may have ended, or be threads.
    """
    last = int((PROC / "loadavg").read_text().split()[-1])
    yield from range(last, max(0, last - YOUNG), -1)
    yield from sorted(every_pid(), reverse=True)


def children_of(parent: int) -> dict[int, int]:
    """Return the pids here of all children, by their pids in the parent's pid namespace."""
    found = {}
    with suppress(ProcessLookupError):
        depth = len(namespace_pids(parent)) - 1
        for pid in every_pid():
            with suppress(ProcessLookupError, IndexError):  # ended, or further out
                if parent_of(pid) == parent:
                    found[namespace_pids(pid)[depth]] = pid
    return found


def is_first(pid: int) -> bool:
    """Return whether a process is the first of its own pid namespace."""
    try:
        return namespace_pids(pid)[-1] == 1
    except ProcessLookupError:
        return False


def state_of(pid: int) -> str:
    """Return the letter of a process's state, such as R, S, D, T (stopped) or Z (ended)."""
    return _stat(pid)[0]


def name_of(pid: int) -> str:
    """Return a process's name, its program's or its own choice, of at most 15 bytes."""
    return _read(pid, "comm").rstrip("\n")


def environment_of(pid: int) -> dict[str, str]:
    """Return the environment that a process was started with.

    Raises:
        OSError: there is no such process, or reading is not allowed.
    """
    entries = (PROC / str(pid) / "environ").read_bytes().split(b"\0")
    pairs = (entry.partition(b"=") for entry in entries if entry)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def max_processes_of(pid: int) -> int:
    """Return how many processes the uid of a process may have, by the process's limit."""
    # Unlike prlimit, this needs no capability for a process of another uid.
    for line in _read(pid, "limits").splitlines():
        if line.startswith("Max processes"):
            soft = line.split()[2]
            return resource.RLIM_INFINITY if soft == "unlimited" else int(soft)
    raise ProcessLookupError(pid)


def describe(pid: int) -> str:
    """Describe a process as text: its pid, and its name if it still has one."""
    try:
        return f"{pid} ({name_of(pid)})"
    except ProcessLookupError:
        return f"{pid} (ended)"


def parent_of(pid: int) -> int:
    """Return the pid of a process's parent."""
    return int(_stat(pid)[1])


def _start_time(pid: int) -> int:
    return int(_stat(pid)[19])


def _stat(pid: int) -> list[str]:
    """Return the fields of a process's stat file from the third on."""
    # The second is the command in parentheses and may contain anything, even parentheses.
    return _read(pid, "stat").rsplit(")", 1)[1].split()


def _read(pid: int, name: str) -> str:
    try:
        return (PROC / str(pid) / name).read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):  # gone before, or while it was read
        raise ProcessLookupError(f"no process {pid}") from None


STOPPED_WITHIN_SECONDS = 10.0
POLL_SECONDS = 0.005
STOPPED = ("T", "t", "Z", "X")
"""States of a process in /proc that count as suspended: stopped, stopped by a debugger, exited."""


def stop_all(first: int) -> None:
    """Suspend every process in the pid namespace of ``first``, and wait until all are suspended.

    Raises:
        NodeError: some still run after STOPPED_WITHIN_SECONDS; the others are continued.
    """
    deadline = time.monotonic() + STOPPED_WITHIN_SECONDS
    # A process that is not stopped yet may start another one: finish only after a complete pass
    # without running processes.
    while moving := [one for one in _members(first) if not is_stopped(one.pid)]:
        for process in moving:
            process.send(signal.SIGSTOP)
        if time.monotonic() > deadline:
            continue_all(first)
            raise NodeError(f"process {first} did not stop within {STOPPED_WITHIN_SECONDS:g} s.")
        time.sleep(POLL_SECONDS)


def continue_all(first: int) -> None:
    """Continue every process of the pid namespace of ``first``."""
    for process in _members(first):
        process.send(signal.SIGCONT)


def is_stopped(pid: int) -> bool:
    """Return whether a process is stopped, or has ended."""
    try:
        return state_of(pid) in STOPPED
    except ProcessLookupError:
        return True


def _members(first: int) -> Iterator[Process]:
    """Yield the processes that share a pid namespace with ``first``."""
    try:
        namespace = _namespace(first)
    except OSError:
        return
    for pid in every_pid():
        with suppress(OSError):  # it has just ended, or is another user's
            process = Process.of(pid)
            # Its start time was read before its namespace: so it is the process in there.
            if _namespace(process.pid) == namespace:
                yield process


def _namespace(pid: int) -> str:
    return str(Path(f"/proc/{pid}/ns/pid").readlink())
