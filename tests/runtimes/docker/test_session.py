"""Forwarding between a terminal and a command in a container, without an engine."""

from __future__ import annotations

import subprocess
import sys

CARRY = """
import socket, sys
from testbed.runtimes.docker.session import CHUNK_BYTES, _carry

engine, peer = socket.socketpair()
engine.sendall(b"y" * (2 * CHUNK_BYTES + 1))
pieces = []

def unpack(data):
    pieces.append(data)
    if len(pieces) == 2:
        engine.setblocking(False)
        sys.stderr.write(repr(engine.recv(1)))
        engine.close()
    return [(1, data)]

_carry(peer, unpack, begun=lambda: None)
"""


def test_input_is_forwarded_between_two_chunks_of_output() -> None:
    """A command that never stops printing always has more output to read."""
    done = subprocess.run(
        [sys.executable, "-c", CARRY], input=b"\x03", capture_output=True, check=False, timeout=60
    )
    assert done.stderr == rb"b'\x03'"
    assert set(done.stdout) == {ord("y")}
