"""Waits for the end of a run, whoever controls it and however it ends."""

from __future__ import annotations

import time
from collections.abc import Callable

from testbed.host.process import Process
from testbed.telemetry.folder import ENDED, RunFolder, RunState

LOOK_SECONDS = 0.2
UNSTARTED_SECONDS = 30.0
"""A run that nobody has locked for so long, and that is in no final state, was never started."""


def wait_for_end(
    folder: RunFolder, *, timeout_seconds: float | None, clock: Callable[[], float] = time.monotonic
) -> RunState | None:
    """Wait until the process that controls a run has ended, and what it left alone with it.

    Args:
        folder: the run's.
        timeout_seconds: how long; None for as long as it takes.
        clock: monotonic seconds.

    Returns:
        The run's last state, which is none of the final ones if its controller was killed; None if
        it still goes on.

    Raises:
        RunNotFound: the folder was deleted.
    """
    begun = clock()
    while True:
        controlled = _is_controlled(folder)  # asked first: what it writes before its end is there
        alive = folder.alive()
        state = folder.state()
        waited = clock() - begun
        started = folder.lock.exists() or waited > UNSTARTED_SECONDS
        if not controlled and (state.state in ENDED or (started and not alive)):
            return state
        if timeout_seconds is not None and waited >= timeout_seconds:
            return None
        time.sleep(LOOK_SECONDS)  # neither a lock nor a file can be waited for with a timeout


def _is_controlled(folder: RunFolder) -> bool:
    """Whether the process that took the lock still lives; it makes the summary last of all."""
    try:
        controller = Process.parse(folder.lock.read_text())
    except FileNotFoundError:
        return False
    return controller is not None and controller.alive()
