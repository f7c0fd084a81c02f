"""Suspends all processes of a node with SIGSTOP, for hosts where control groups cannot freeze."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from testbed.errors import NodeError
from testbed.host.process import Process, every_pid, state_of

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
