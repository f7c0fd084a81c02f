"""A run's lock: whoever starts the run takes it, and whoever ends it waits until it is let go."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator

from testbed.errors import NodeError
from testbed.runtimes.process import Process
from testbed.runtimes.remains import not_ended
from testbed.telemetry.folder import RunFolder

POLL_SECONDS = 0.02


def take_lock(folder: RunFolder) -> int:
    """Take a run's lock and write into it who has it; a descriptor that holds it while open.

    Raises:
        NodeError: somebody has it.
        OSError: the folder is missing, or not to be written.
    """
    lock = os.open(folder.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise NodeError(
            f"{folder.path} is in use: its lock is held.", hint=f"`testbed down {folder.name}`"
        ) from None
    os.ftruncate(lock, 0)
    os.write(lock, f"{Process.of(os.getpid())}\n".encode())
    return lock


def attempts(folder: RunFolder, *, within_seconds: float) -> Iterator[None]:
    """Comes round again and again for one who ends a run and waits for its lock, until break.

    Raises:
        NodeError: the time is up; says what is left of the run, and how to end that.
    """
    deadline = time.monotonic() + within_seconds
    yield
    while time.monotonic() <= deadline:
        time.sleep(POLL_SECONDS)  # a lock cannot be waited for with a timeout
        yield
    raise not_ended(folder, after_seconds=within_seconds)
