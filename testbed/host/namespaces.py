"""Network namespaces by process: open and temporarily enter one. Python 3.11 has no setns."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from testbed.host import syscalls

LOOPBACK_INDEX = 1
"""The interface that every new network namespace has."""


@contextmanager
def inside(pid: int) -> Iterator[None]:
    """Run the body in the network namespace of process ``pid``.

    Only the calling thread moves. A socket opened in the body stays in that namespace for good, so
    open it here and use it outside.

    Raises:
        OSError: no such process (it may have ended), or entering is not allowed.
    """
    namespace = open_namespace(pid)
    try:
        with entered(namespace):
            yield
    finally:
        os.close(namespace)


def open_namespace(pid: int) -> int:
    """Return a descriptor of a process's network namespace, which lives while it is open.

    Raises:
        OSError: no such process (it may have ended), or access is not allowed.
    """
    return os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)


@contextmanager
def entered(namespace: int) -> Iterator[None]:
    """Run the body in an open network namespace; otherwise like ``inside``."""
    with _returning():
        syscalls.setns(namespace, syscalls.CLONE_NEWNET)
        yield


@contextmanager
def scratch() -> Iterator[None]:
    """Run the body in a fresh network namespace that ends with the last thing opened in it."""
    with _returning():
        syscalls.unshare(syscalls.CLONE_NEWNET)
        yield


@contextmanager
def _returning() -> Iterator[None]:
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        # If the way back is denied, fail here, before leaving.
        syscalls.setns(home, syscalls.CLONE_NEWNET)
        try:
            yield
        finally:
            syscalls.setns(home, syscalls.CLONE_NEWNET)
    finally:
        os.close(home)
