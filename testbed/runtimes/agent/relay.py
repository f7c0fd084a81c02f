"""Carries a stream between standard input and output and one of the agent's sockets.

``python -m testbed.runtimes.agent.relay SOCKET [LOCK]``, executed by an engine in the agent's
container on another host: the controller cannot reach a socket there. With LOCK it takes the place
of the controller at the lifeline: it commits the run, and hands over that file's lock. It ends when
either side does, so a controller that dies hangs up here too.
"""

from __future__ import annotations

import fcntl
import os
import select
import socket
import sys
import time
from pathlib import Path

from testbed.host.sockets import short_path
from testbed.runtimes.agent.settings import COMMIT

CONNECT_SECONDS = 30.0
POLL_SECONDS = 0.02
CHUNK_BYTES = 2**16


def main() -> int:
    """Connect, and carry until either side ends; 1 if there is no such socket in time."""
    path, *lock = map(Path, sys.argv[1:])
    peer = _connect(path)
    if peer is None:
        sys.stderr.write(f"{path}: the agent does not listen.\n")
        return 1
    if lock:
        held = os.open(lock[0], os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        socket.send_fds(peer, [COMMIT], [held])
    carry(sys.stdin.fileno(), sys.stdout.fileno(), peer)
    return 0


def _connect(path: Path) -> socket.socket | None:
    deadline = time.monotonic() + CONNECT_SECONDS
    while time.monotonic() < deadline:
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with short_path(path) as name:
                peer.connect(name)
        except (FileNotFoundError, ConnectionRefusedError):
            peer.close()
            time.sleep(POLL_SECONDS)
        else:
            return peer
    return None


def carry(reader: int, writer: int, peer: socket.socket) -> None:
    """Carry data both ways until one of them has ended."""
    poller = select.poll()
    for descriptor in (reader, peer.fileno()):
        poller.register(descriptor, select.POLLIN)
    while True:
        ready = [descriptor for descriptor, _ in poller.poll()]
        if peer.fileno() in ready:
            try:
                data = peer.recv(CHUNK_BYTES)
            except ConnectionResetError:  # it has closed it, and left something unread
                return
            if not data:
                return
            while data:
                data = data[os.write(writer, data) :]
        if reader in ready:
            data = os.read(reader, CHUNK_BYTES)
            if not data:
                return
            peer.sendall(data)


if __name__ == "__main__":
    sys.exit(main())
