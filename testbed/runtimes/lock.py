"""The lock of a run: taken by the process that starts it, awaited by a process that ends it.

A run's agent holds it, too. A second one is only its controller's, until the report is written.
"""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

from testbed.errors import NodeError
from testbed.host.process import Process, describe
from testbed.runtimes.agent.settings import all_of
from testbed.telemetry.files import is_gone
from testbed.telemetry.folder import RunFolder

POLL_SECONDS = 0.02


def take_lock(folder: RunFolder) -> int:
    """Take a run's lock and write the holder into it; return a descriptor that holds it while open.

    The folders that an agent needs exist afterwards.

    Raises:
        NodeError, OSError: it is already held; the folder is missing, or not writable.
    """
    folder.control.mkdir(mode=0o700, exist_ok=True)
    folder.logs.mkdir(exist_ok=True)
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


@contextmanager
def holding_lock(folder: RunFolder) -> Iterator[None]:
    """Hold a run's lock for as long as this process, which may live on, controls the run."""
    lock, process = take_lock(folder), os.getpid()
    try:
        yield
    finally:
        if os.getpid() == process:  # not in a copy that own code has forked,
            os.ftruncate(lock, 0)
            fcntl.flock(lock, fcntl.LOCK_UN)  # which may have it open, too
        os.close(lock)


@contextmanager
def controlling(folder: RunFolder) -> Iterator[None]:
    """Inside, this process controls the run and then writes its report."""
    folder.control.mkdir(mode=0o700, exist_ok=True)
    handle, process = os.open(folder.control, os.O_RDONLY | os.O_DIRECTORY), os.getpid()
    try:
        fcntl.flock(handle, fcntl.LOCK_SH)
        yield
    finally:
        if os.getpid() == process:  # as in ``holding_lock``
            fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)


def is_controlled(folder: RunFolder) -> bool:
    """Return whether the run's controller lives, and has not written its report yet."""
    try:
        handle = os.open(folder.control, os.O_RDONLY | os.O_DIRECTORY)
    except (FileNotFoundError, PermissionError):  # the folder was deleted; it is another user's
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def is_orphan(folder: RunFolder) -> bool:
    """Return whether no process is in charge of a run: its folder was deleted, or its lock is free.

    False if the folder is another user's.
    """
    try:
        mine = folder.lock.stat().st_uid == os.geteuid()
    except OSError:
        return is_gone(folder.path)
    return mine and not folder.alive()


def end_holder(folder: RunFolder, *, within_seconds: float) -> bool:
    """Ask the process that holds a run's lock to end, and wait; return whether there was one.

    Raises:
        NodeError: it belongs to another user, or has not ended in time.
    """
    if not folder.alive():
        return False
    holder = _holder(folder)
    if holder is not None:
        holder.send(signal.SIGTERM)
    for _ in attempts(folder, within_seconds=within_seconds):
        if not folder.alive():
            break
    return True


def attempts(folder: RunFolder, *, within_seconds: float) -> Iterator[None]:
    """Yield once per attempt, for a loop that ends a run and exits once it has the lock.

    Raises:
        NodeError: the time is up; names what is left of the run, and how to end that.
    """
    deadline = time.monotonic() + within_seconds
    yield
    while time.monotonic() <= deadline:
        time.sleep(POLL_SECONDS)  # a lock cannot be waited for with a timeout
        yield
    raise not_ended(folder, after_seconds=within_seconds)


def not_ended(folder: RunFolder, *, after_seconds: float) -> NodeError:
    """Return the error for a run that has not ended: names the processes, and how to end them."""
    agents, holder = all_of(folder.path), _holder(folder)
    left = [describe(one.pid) for one in agents]
    if holder is not None:
        left.append(f"{describe(holder.pid)}, which started it and holds its lock")
    if not left:
        return NodeError(
            f"{folder.lock} is still held after {after_seconds:g} s, by a process that is neither "
            "the run's agent nor the one that started it, or that belongs to another user.",
            hint=f"Find the process with `fuser -v {folder.lock}` as root, end it, then run "
            f"`testbed down {folder.name}`.",
        )
    pids = " ".join(str(one.pid) for one in (*agents, *([holder] if holder else [])))
    return NodeError(
        f"{folder.name} has not ended after {after_seconds:g} s. Still running: process "
        f"{'; process '.join(left)}.",
        hint=f"`kill -9 {pids}`, then `testbed down {folder.name}`.",
    )


def _holder(folder: RunFolder) -> Process | None:
    """Return the process that took the lock, if it is alive and the lock is held."""
    if not folder.alive():
        return None
    try:
        taken = Process.parse(folder.lock.read_text())
    except OSError:  # removed meanwhile, or another user's
        return None
    return taken if taken is not None and taken.alive() else None
