"""Stops all processes of a node by signal, where there is no control group to freeze it with."""

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
"""Stopped, stopped by a debugger, and ended."""


def stop_all(first: int) -> None:
    """Stop every process of the pid namespace that ``first`` is in, and wait until all stand.

    Raises:
        NodeError: they do not within STOPPED_WITHIN_SECONDS; what was stopped goes on again.
    """
    deadline = time.monotonic() + STOPPED_WITHIN_SECONDS
    # A process that is not stopped yet may start another one: only a whole look that finds nobody
    # moving is the end.
    while moving := [one for one in _members(first) if not is_stopped(one.pid)]:
        for process in moving:
            process.send(signal.SIGSTOP)
        if time.monotonic() > deadline:
            continue_all(first)
            raise NodeError(f"process {first} does not stop within {STOPPED_WITHIN_SECONDS:g} s.")
        time.sleep(POLL_SECONDS)


def continue_all(first: int) -> None:
    """Let every process of the pid namespace that ``first`` is in go on."""
    for process in _members(first):
        process.send(signal.SIGCONT)


def is_stopped(pid: int) -> bool:
    """Whether a process is stopped, or has ended."""
    try:
        return state_of(pid) in STOPPED
    except ProcessLookupError:
        return True


def _members(first: int) -> Iterator[Process]:
    """The processes that share a pid namespace with ``first``."""
    try:
        namespace = _namespace(first)
    except OSError:
        return
    for pid in every_pid():
        with suppress(OSError):  # it has just ended, or is another user's
            process = Process.of(pid)
            # Known by its start time before its namespace is read: so it is the one in there.
            if _namespace(process.pid) == namespace:
                yield process


def _namespace(pid: int) -> str:
    return str(Path(f"/proc/{pid}/ns/pid").readlink())
