"""Two roles that measure a link: a sender at full speed, and a receiver that counts."""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import suppress

from testbed.host.sockets import connect

PORT = 5000
CHUNK_BYTES = 1 << 16
PATIENCE_SECONDS = 10.0


def receive(arguments: Mapping[str, str]) -> int:
    """Accept one connection and print its rate in bits per second.

    Data is not counted for the first ``skip`` seconds, and then for ``seconds``.
    """
    with socket.create_server(("", PORT)) as listener:
        listener.settimeout(PATIENCE_SECONDS)
        peer, _ = listener.accept()
    with peer:
        peer.settimeout(PATIENCE_SECONDS)
        _count(peer, float(arguments["skip"]))
        seconds = float(arguments["seconds"])
        rate = 8 * _count(peer, seconds) / seconds
    sys.stdout.write(json.dumps({"bits_per_second": rate}) + "\n")
    return 0


def send(arguments: Mapping[str, str]) -> int:
    """Send to the receiver at ``address`` until it closes the connection."""
    data = bytes(CHUNK_BYTES)
    receiver = connect(arguments["address"], PORT, patience_seconds=PATIENCE_SECONDS)
    with receiver, suppress(BrokenPipeError, ConnectionResetError):
        while True:
            receiver.sendall(data)
    return 0


def _count(peer: socket.socket, seconds: float) -> int:
    """Return the number of bytes received within ``seconds``."""
    total, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        data = peer.recv(CHUNK_BYTES)
        if not data:
            raise ConnectionError("the sender has ended")
        total += len(data)
    return total
