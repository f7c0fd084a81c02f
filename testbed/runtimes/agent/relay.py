"""Carries a stream between standard input and output and one of the agent's sockets.

``python -m testbed.runtimes.agent.relay SOCKET [LOCK]``, executed by an engine in the agent's
container on another host: the controller cannot reach a socket there. With LOCK it takes the place
of the controller at the lifeline: it commits the run, and hands over that file's lock. It ends when
either side does, so a controller that dies hangs up here too. The engine may not notice that the
controller's whole machine has vanished: at the lifeline, the controller sends an empty line every
few seconds, and a relay that receives nothing for the time of its lease ends. The agent's log says
which of the two has ended the run.
"""

from __future__ import annotations

import fcntl
import os
import select
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from testbed.host.sockets import short_path
from testbed.host.syscalls import watch_names
from testbed.runtimes.agent.settings import AGENT_LOG, COMMIT
from testbed.telemetry.folder import RunFolder

CONNECT_SECONDS = 30.0
LEASE_SECONDS = 60.0
BEAT_SECONDS = LEASE_SECONDS / 6
CHUNK_BYTES = 2**16

HUNG_UP = "The stream from the controller has ended."
EXPIRED = (
    f"The controller was not heard for {LEASE_SECONDS:g} s: its lease has ended, and the nodes end."
)


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
    lease = LEASE_SECONDS if lock else None
    why = carry(sys.stdin.fileno(), sys.stdout.fileno(), peer, lease_seconds=lease)
    if lock and why:
        with RunFolder(path.parents[1]).log(AGENT_LOG).open("a") as log:
            log.write(f"{why}\n")
    return 0


def _connect(path: Path) -> socket.socket | None:
    """Connect to a socket, once there is one; None if it does not listen in time."""
    deadline = time.monotonic() + CONNECT_SECONDS
    appears = select.poll()
    watch = watch_names(path.parent)
    appears.register(watch, select.POLLIN)
    try:
        while (left := deadline - time.monotonic()) > 0:
            peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                with short_path(path) as name:
                    peer.connect(name)
            except FileNotFoundError:
                peer.close()
                if appears.poll(1000 * left):
                    os.read(watch, CHUNK_BYTES)
            except ConnectionRefusedError:  # it listens before it has this name
                peer.close()
                return None
            else:
                return peer
        return None
    finally:
        os.close(watch)


def carry(
    reader: int,
    writer: int,
    peer: socket.socket,
    *,
    lease_seconds: float | None = None,
    unpack: Callable[[bytes], bytes] = bytes,
) -> str:
    """Carry data both ways until one side has ended, or the lease has; return why, as text.

    The text is empty if it was the peer that ended.

    Args:
        reader, writer: in the agent's container this process's own input and output.
        peer: a socket; there the agent's.
        lease_seconds: how long the input may be silent; None for ever. Empty lines renew the
            lease, and by themselves are not passed on.
        unpack: removes what carries the input, such as frames.
    """
    with suppress(BrokenPipeError, ConnectionResetError):  # closed, with something unread
        return _carry(reader, writer, peer, lease_seconds, unpack)
    return ""


def _carry(
    reader: int,
    writer: int,
    peer: socket.socket,
    lease_seconds: float | None,
    unpack: Callable[[bytes], bytes],
) -> str:
    poller = select.poll()
    for descriptor in (reader, peer.fileno()):
        poller.register(descriptor, select.POLLIN)
    heard = time.monotonic()
    while True:
        left = None if lease_seconds is None else heard + lease_seconds - time.monotonic()
        if left is not None and left <= 0:
            return EXPIRED
        ready = [descriptor for descriptor, _ in poller.poll(None if left is None else 1000 * left)]
        if peer.fileno() in ready:
            data = peer.recv(CHUNK_BYTES)
            if not data:
                return ""
            while data:
                data = data[os.write(writer, data) :]
        if reader in ready:
            data = os.read(reader, CHUNK_BYTES)
            if not data:
                return HUNG_UP
            heard = time.monotonic()
            if lease_seconds is None or data.strip():
                peer.sendall(unpack(data))


if __name__ == "__main__":
    sys.exit(main())
