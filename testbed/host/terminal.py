"""This process's own terminal: its input, its output, and output that is diverted from it."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TextIO

STDIN, STDOUT, STDERR = 0, 1, 2

_MULTIPLEXER = Path("/dev/pts/ptmx")
_TIOCSPTLCK = 0x4004_5431
_TIOCGPTPEER = 0x5441


def is_terminal() -> bool:
    """Return whether standard input and output are a terminal."""
    return os.isatty(STDIN) and os.isatty(STDOUT)


@contextmanager
def raw(resize: Callable[[], None]) -> Iterator[None]:
    """Receive keys as they are pressed, even Ctrl-C; call ``resize`` when the window changes."""
    with ExitStack() as held:
        before = termios.tcgetattr(STDIN)
        held.callback(termios.tcsetattr, STDIN, termios.TCSADRAIN, before)
        tty.setraw(STDIN)
        usual = signal.signal(signal.SIGWINCH, lambda number, frame: resize())
        held.callback(signal.signal, signal.SIGWINCH, usual)
        yield


def write(descriptor: int, data: bytes) -> None:
    """Write all data."""
    while data:
        data = data[os.write(descriptor, data) :]


@contextmanager
def diverted(descriptor: int) -> Iterator[TextIO]:
    """Redirect the output of this process and its children to a descriptor, in the context.

    Yields:
        The original standard output.
    """
    usual = sys.stdout, sys.stderr
    for stream in usual:
        stream.flush()
    kept = [os.dup(number) for number in (STDOUT, STDERR)]
    shown = open(kept[0], "w", buffering=1, errors="replace", closefd=False)  # noqa: SIM115
    for number in (STDOUT, STDERR):
        os.dup2(descriptor, number)
    sys.stdout, sys.stderr = (
        open(number, "w", buffering=1, errors="replace", closefd=False)  # noqa: SIM115
        for number in (STDOUT, STDERR)
    )
    try:
        yield shown
    finally:
        for stream in (shown, sys.stdout, sys.stderr):
            stream.flush()
        sys.stdout, sys.stderr = usual
        for number, before in zip((STDOUT, STDERR), kept, strict=True):
            os.dup2(before, number)
            os.close(before)


def open_terminal(size: tuple[int, int]) -> tuple[int, int]:
    """Open a terminal of that many lines and columns, in this mount namespace's /dev/pts.

    Returns:
        Descriptors of both its ends: the display's and the command's.

    Raises:
        OSError: there is no /dev/pts, or it is full.
    """
    master = os.open(_MULTIPLEXER, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    fcntl.ioctl(master, _TIOCSPTLCK, struct.pack("i", 0))
    # By this call and not by its path, which another process may have replaced.
    slave = fcntl.ioctl(master, _TIOCGPTPEER, os.O_RDWR | os.O_NOCTTY)
    termios.tcsetwinsize(slave, size)
    return master, slave
