"""Unix sockets: by paths longer than an address can be, and who is at the other end."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_CREDENTIALS = struct.Struct("iII")  # struct ucred: pid, uid, gid


@contextmanager
def short_path(path: Path) -> Iterator[str]:
    """A name for a socket whose own path may be longer than the 107 bytes that an address holds.

    Raises:
        OSError: its folder is missing.
    """
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def pid_of_listener(peer: socket.socket) -> int:
    """The pid of who listens at the other end, as this pid namespace has it; 0 for none."""
    told = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(told)[0])
