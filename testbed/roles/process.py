"""How a role's process ends: on SIGTERM, with an error for the user, or when it is done."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Never

from testbed.errors import TestbedError
from testbed.values.signals import Signalled, sent_again
from testbed.values.user_code import own_failures, own_trace


class TerminatedError(Signalled):
    """SIGTERM was received. Only the end of the role may handle it."""


@contextmanager
def terminable() -> Iterator[None]:
    """Raise TerminatedError inside the context on the first SIGTERM; ignore later ones.

    After the context the process only has to exit, so SIGTERM is ignored from then on.
    """

    def terminate(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise TerminatedError

    def listen() -> int:
        signal.signal(signal.SIGTERM, terminate)
        return signal.SIGTERM

    listen()
    try:
        with sent_again(TerminatedError, listen):
            yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


SCRATCH = ("/tmp/", "/dev/shm/")

LONG_SLEEP_SECONDS = 5.0
"""To return the buffers of a model and to get them again takes 2 to 3 ms of CPU time.

1,000 workers that sleep this long between their steps take half a CPU for that.
"""

_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc; musl returns memory by itself


def wait_for_end() -> Never:
    """Block until SIGTERM.

    ``pause`` would miss a signal just before it; a byte in a pipe is not lost.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    while True:
        os.read(reader, 1)


def sleep_small(seconds: float, *, long_seconds: float = LONG_SLEEP_SECONDS) -> None:
    """Sleep; return free memory before a long sleep, which the time for that shortens.

    Both are real seconds. Between two calls a worker has no use for the buffers of a model, but
    glibc keeps them.
    """
    began = time.monotonic()
    if seconds >= long_seconds:
        return_free_memory()
    time.sleep(max(0.0, seconds - (time.monotonic() - began)))


def return_free_memory() -> None:
    """Return free memory to the kernel, if the C library supports it."""
    if _trim is not None:
        _trim(0)


def run(node: str, body: Callable[[], None]) -> int:
    """Run a role and print its error; for the user's own code, with a traceback.

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
    """Return a hint for user code that did not find a file which the host may have."""
    name = cause.filename if isinstance(cause, FileNotFoundError) else None
    if isinstance(name, str) and name.startswith(SCRATCH):
        return " A node has its own /tmp and /dev/shm: keep the file in another folder."
    return ""
