"""Network namespaces by process: open one, be inside it for a moment. Python 3.11 has no setns."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

CLONE_NEWNET = 0x40000000
LOOPBACK_INDEX = 1
"""The interface that every network namespace is born with."""

_LIBC = ctypes.CDLL(None, use_errno=True)


@contextmanager
def inside(pid: int) -> Iterator[None]:
    """Run the body in the network namespace of process ``pid``.

    Only the calling thread moves. A socket opened in the body stays in that namespace for good, so
    open it here and use it outside.

    Raises:
        OSError: no such process (it may have ended), or it may not be entered.
    """
    target = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        with _returning():
            _setns(target)
            yield
    finally:
        os.close(target)


@contextmanager
def scratch() -> Iterator[None]:
    """Run the body in a fresh network namespace that ends with the last thing opened in it.

    Raises:
        OSError: this process may not make namespaces.
    """
    with _returning():
        _check(_LIBC.unshare(CLONE_NEWNET), "unshare a network namespace")
        yield


@contextmanager
def _returning() -> Iterator[None]:
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _setns(home)  # if the way back is barred, learn it before leaving
        try:
            yield
        finally:
            _setns(home)
    finally:
        os.close(home)


def _setns(descriptor: int) -> None:
    _check(_LIBC.setns(descriptor, CLONE_NEWNET), "enter a network namespace")


def _check(result: int, doing: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"cannot {doing}: {os.strerror(number)}")
