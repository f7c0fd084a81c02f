"""One process, named so that a reused pid is never mistaken for it.

What asks about a pid raises ProcessLookupError where there is no such process.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from testbed.errors import NodeError, TestbedError

PROC = Path("/proc")


@dataclass(frozen=True)
class Process:
    """A process of this pid namespace; ``started`` is in clock ticks since the boot."""

    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> Process:
        """The process that has this pid now."""
        return cls(pid, _start_time(pid))

    @classmethod
    def parse(cls, text: str) -> Process | None:
        """Read what ``str`` wrote, or None if it is something else."""
        match text.split():
            case [pid, started] if pid.isdecimal() and started.isdecimal():
                return cls(int(pid), int(started))
        return None

    def __str__(self) -> str:
        return f"{self.pid} {self.started}"

    def open(self) -> int | None:
        """A pidfd of this very process, or None if it has ended and been waited for."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return None
        # Compared only now that the pidfd is held: from here on the pid cannot change its owner.
        with suppress(ProcessLookupError):
            if _start_time(self.pid) == self.started:
                return descriptor
        os.close(descriptor)
        return None

    def alive(self) -> bool:
        """Whether it still runs; a zombie does not."""
        descriptor = self.open()
        if descriptor is None:
            return False
        try:
            return not has_ended(descriptor, 0)
        finally:
            os.close(descriptor)

    def kill(self) -> None:
        """Send SIGKILL, if it is still there."""
        self.send(signal.SIGKILL)

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if it is still there.

        Raises:
            NodeError: it is another user's.
        """
        descriptor = self.open()
        if descriptor is None:
            return
        try:
            with suppress(ProcessLookupError):  # it ended in the meantime: as was asked for
                signal.pidfd_send_signal(descriptor, number)
        except PermissionError:
            raise NodeError(
                f"process {self.pid} belongs to another user.",
                hint="Run this as the user who started it, or as root.",
            ) from None
        finally:
            os.close(descriptor)


def has_ended(pidfd: int, timeout_seconds: float) -> bool:
    """Wait until the process behind a pidfd has ended; False when the time is up."""
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    return bool(poller.poll(timeout_seconds * 1000))


def end_with(work: Callable[[], int]) -> NoReturn:
    """Do the work and end the process with its status, whatever happens.

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
        # No way leads back from here: a fork must never go on with the work of its parent.
        if sys.exc_info()[0] is not None:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status & 0xFF)


def every_pid() -> Iterator[int]:
    """The pids of all processes that this pid namespace has; each may end at any moment."""
    for entry in os.scandir(PROC):
        if entry.name.isdecimal():
            yield int(entry.name)


def namespace_pids(pid: int) -> tuple[int, ...]:
    """The pids of a process in this pid namespace and in each nested one, outermost first."""
    for line in _read(pid, "status").splitlines():
        if line.startswith("NSpid:"):
            return tuple(int(word) for word in line.split()[1:])
    raise ProcessLookupError(pid)


def child_of(parent: int, inner: int) -> int | None:
    """The pid here of a child that its parent's pid namespace knows as ``inner``; None for none."""
    with suppress(ProcessLookupError):
        depth = len(namespace_pids(parent)) - 1
        for pid in sorted(every_pid(), reverse=True):  # most often it is among the youngest
            with suppress(ProcessLookupError, IndexError):  # ended, or further out
                if parent_of(pid) == parent and namespace_pids(pid)[depth] == inner:
                    return pid
    return None


def is_first(pid: int) -> bool:
    """Whether a process is the first of its own pid namespace."""
    try:
        return namespace_pids(pid)[-1] == 1
    except ProcessLookupError:
        return False


def state_of(pid: int) -> str:
    """The letter of a process's state, such as R, S, D, T (stopped) or Z (ended)."""
    return _stat(pid)[0]


def name_of(pid: int) -> str:
    """What a process is called: its program, or what it has named itself, in at most 15 bytes."""
    return _read(pid, "comm").rstrip("\n")


def environment_of(pid: int) -> dict[str, str]:
    """The environment that a process was started with.

    Raises:
        OSError: there is no such process, or it may not be read.
    """
    entries = (PROC / str(pid) / "environ").read_bytes().split(b"\0")
    pairs = (entry.partition(b"=") for entry in entries if entry)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def most_processes_of(pid: int) -> int:
    """How many processes the uid of a process may have, by that one's limit."""
    # Unlike prlimit, this takes no capability where the uid is another.
    for line in _read(pid, "limits").splitlines():
        if line.startswith("Max processes"):
            soft = line.split()[2]
            return resource.RLIM_INFINITY if soft == "unlimited" else int(soft)
    raise ProcessLookupError(pid)


def describe(pid: int) -> str:
    """A process in words: its pid, and its name while it has one."""
    try:
        return f"{pid} ({name_of(pid)})"
    except ProcessLookupError:
        return f"{pid} (just ended)"


def parent_of(pid: int) -> int:
    """The pid of a process's parent."""
    return int(_stat(pid)[1])


def _start_time(pid: int) -> int:
    return int(_stat(pid)[19])


def _stat(pid: int) -> list[str]:
    """The fields of a process's state from the third on."""
    # The second is the command in parentheses and may hold anything, parentheses too.
    return _read(pid, "stat").rsplit(")", 1)[1].split()


def _read(pid: int, name: str) -> str:
    try:
        return (PROC / str(pid) / name).read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):  # gone before, or while it was read
        raise ProcessLookupError(f"no process {pid}") from None
