"""The stream to an agent on another host: frames of the engine, and the relay at the other end."""

from __future__ import annotations

import os
import socket
import struct
import threading
import time

from testbed.host.terminal import STDERR, STDOUT
from testbed.runtimes.agent.lines import Lines
from testbed.runtimes.agent.relay import EXPIRED, carry
from testbed.runtimes.docker.pipe import output_of


def frame(stream: int, data: bytes) -> bytes:
    return struct.pack(">BxxxI", stream, len(data)) + data


def test_lines_are_those_of_standard_output_however_they_are_cut() -> None:
    sent = frame(STDOUT, b'{"id":') + frame(STDERR, b"a warning\n") + frame(STDOUT, b"1}\n{}\n")
    for size in (1, 7, len(sent)):
        engine, here = socket.socketpair()
        lines = Lines.over(here, line_bytes=100)
        lines.unpack = output_of()
        found = []
        for begin in range(0, len(sent), size):
            engine.sendall(sent[begin : begin + size])
            found += lines.receive() or []
        assert found == [b'{"id":1}', b"{}"]
        engine.close()
        assert lines.receive() is None
        lines.close()


def test_the_relay_carries_both_ways_and_ends_with_its_input() -> None:
    agent, peer = socket.socketpair()
    (reader, to_relay), (from_relay, writer) = os.pipe(), os.pipe()
    relay = threading.Thread(target=carry, args=(reader, writer, peer))
    relay.start()
    os.write(to_relay, b"asked\n")
    assert agent.recv(100) == b"asked\n"
    agent.sendall(b"answered\n")
    assert os.read(from_relay, 100) == b"answered\n"
    os.close(to_relay)
    relay.join(timeout=180)
    assert not relay.is_alive()
    for descriptor in (reader, writer, from_relay):
        os.close(descriptor)
    agent.close()
    peer.close()


def test_a_relay_whose_controller_says_nothing_ends_with_its_lease() -> None:
    agent, peer = socket.socketpair()
    (reader, to_relay), (from_relay, writer) = os.pipe(), os.pipe()
    said: list[str] = []
    relay = threading.Thread(
        target=lambda: said.append(carry(reader, writer, peer, lease_seconds=0.7))
    )
    begun = time.monotonic()
    relay.start()
    for _ in range(3):  # longer than the lease in all
        time.sleep(0.25)
        os.write(to_relay, b"\n")
    os.write(to_relay, b"keep\n")
    assert agent.recv(100).split() == [b"keep"]
    relay.join(timeout=180)
    assert not relay.is_alive()
    assert time.monotonic() - begun >= 1.4
    assert said == [EXPIRED]
    for descriptor in (reader, to_relay, from_relay, writer):
        os.close(descriptor)
    agent.close()
    peer.close()
