"""How a role's process ends: by SIGTERM, by an error that a user can read, or done."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Never

from testbed.errors import TestbedError
from testbed.user_code import Signalled, own_failures, own_trace


class TerminatedError(Signalled):
    """SIGTERM has come. Nothing but the role's end may stop it."""


@contextmanager
def terminable() -> Iterator[None]:
    """Raise TerminatedError inside the context when SIGTERM comes; only the first one counts.

    Behind it there is nothing left but the process's own end, so that SIGTERM changes nothing more.
    """

    def terminate(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise TerminatedError

    signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


SCRATCH = ("/tmp/", "/dev/shm/")


def wait_for_end() -> Never:
    """Do nothing until SIGTERM comes.

    ``pause`` sleeps on after a signal that comes just before it; what is in a pipe stays there.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    while True:
        os.read(reader, 1)


def return_free_memory() -> None:
    """Give the kernel back all pages that hold nothing, where the C library can do that."""
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):  # glibc; musl keeps nothing back in the first place
        library.malloc_trim(0)


def run(node: str, body: Callable[[], None]) -> int:
    """Do what a role does, and say what went wrong; of the user's own code, with its traceback.

    Returns:
        The exit status: 0, also after SIGTERM, or that of the error.
    """
    try:
        with terminable(), own_failures(node):
            body()
    except TerminatedError:
        return 0
    except TestbedError as error:
        sys.stderr.write(f"{own_trace(error)}{node}: {error}{_of_scratch(error.__cause__)}\n")
        sys.stderr.flush()
        return error.exit_code
    return 0


def _of_scratch(cause: BaseException | None) -> str:
    """What to add where the user's code has not found a file that the host may have."""
    name = cause.filename if isinstance(cause, FileNotFoundError) else None
    if isinstance(name, str) and name.startswith(SCRATCH):
        return " A node has a /tmp and a /dev/shm of its own: keep the file in another folder."
    return ""
