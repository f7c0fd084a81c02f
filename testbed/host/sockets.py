"""Sockets: paths longer than an address, owners of sockets, and peers that listen late."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed.errors import NodeError

RETRY_SECONDS = 0.02
_CREDENTIALS = struct.Struct("iII")  # struct ucred: pid, uid, gid


@contextmanager
def short_path(path: Path) -> Iterator[str]:
    """Yield a name for a socket path that may exceed the 107 bytes of a socket address.

    Raises:
        OSError: its folder is missing.
    """
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def credentials_of(peer: socket.socket) -> tuple[int, int]:
    """Return the pid and the uid at the other end, as this process's namespaces have them."""
    found = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(found)
    return pid, uid


def pid_of_listener(peer: socket.socket) -> int:
    """Return the pid of the listener at the other end, in this pid namespace; 0 for none."""
    return credentials_of(peer)[0]


def connect(address: str, port: int, *, patience_seconds: float) -> socket.socket:
    """Connect to a peer that may not listen yet; the timeout is ``patience_seconds`` too.

    Raises:
        NodeError: no listener accepted in that time.
        OSError: the peer cannot be reached, now or later.
    """
    deadline = time.monotonic() + patience_seconds
    while True:
        try:
            peer = socket.create_connection(
                (address, port), timeout=max(deadline - time.monotonic(), RETRY_SECONDS)
            )
        except (TimeoutError, ConnectionRefusedError) as error:
            refused = isinstance(error, ConnectionRefusedError)
            if not refused or time.monotonic() >= deadline:
                raise NodeError(
                    f"{address}:{port}: no connection was accepted within {patience_seconds:g} s "
                    f"({'connection refused' if refused else 'no answer'}).",
                    hint="The log of the node with this address shows why it does not listen.",
                ) from None
            time.sleep(RETRY_SECONDS)  # there is no notification of a port that opens
        else:
            peer.settimeout(patience_seconds)
            return peer
