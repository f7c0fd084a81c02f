"""Stops all processes of a node by signal, where there is no control group to freeze it with."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from testbed.errors import NodeError
from testbed.runtimes.process import Process, state_of

STAND_SECONDS = 10.0
POLL_SECONDS = 0.005
STANDING = ("T", "t", "Z", "X")
"""Stopped, stopped by a debugger, and ended."""


def stop_all(first: int) -> None:
    """Stop every process of the pid namespace that ``first`` is in, and wait until all stand.

    Raises:
        NodeError: they do not within STAND_SECONDS; what was stopped goes on again.
    """
    deadline = time.monotonic() + STAND_SECONDS
    # A process that is not stopped yet may start another one: only a whole look that finds nobody
    # moving is the end.
    while moving := [one for one in _members(first) if not is_standing(one.pid)]:
        for process in moving:
            process.send(signal.SIGSTOP)
        if time.monotonic() > deadline:
            go_on(first)
            raise NodeError(f"process {first} does not stop within {STAND_SECONDS:g} s.")
        time.sleep(POLL_SECONDS)


def go_on(first: int) -> None:
    """Let every process of the pid namespace that ``first`` is in go on."""
    for process in _members(first):
        process.send(signal.SIGCONT)


def is_standing(pid: int) -> bool:
    """Whether a process is stopped, or has ended."""
    try:
        return state_of(pid) in STANDING
    except ProcessLookupError:
        return True


def _members(first: int) -> Iterator[Process]:
    """The processes that share a pid namespace with ``first``."""
    try:
        namespace = _namespace(first)
    except OSError:
        return
    for entry in os.scandir("/proc"):
        if not entry.name.isdecimal():
            continue
        with suppress(OSError):  # it has just ended, or is another user's
            process = Process.of(int(entry.name))
            # Known by its start time before its namespace is read: so it is the one in there.
            if _namespace(process.pid) == namespace:
                yield process


def _namespace(pid: int) -> str:
    return str(Path(f"/proc/{pid}/ns/pid").readlink())
