"""Captures of a link, frame by frame."""

from __future__ import annotations

import io
import shutil
import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.network.capture import HEADER, capture, open_capture
from testbed.values.topology import NodeSpec

pytestmark = pytest.mark.root

W0, W1 = (bytes.fromhex(f"02000a4d00{number:02x}") for number in (2, 3))
PINGS = 5


@pytest.fixture
def pair(lab: Any, spec: Callable[..., NodeSpec]) -> tuple[Any, Any]:
    """Two nodes, of which the second sends datagrams back; a sender that pings it."""
    one, other = spec("w0", 2), spec("w1", 3)
    nodes = lab.node(one, other), lab.node(other, one)
    assert nodes[1].peer.tell("reflect 7000") == "reflecting"
    return nodes


def ping(pair: tuple[Any, Any]) -> None:
    assert len(pair[0].peer.tell(f"ping 10.77.0.3 7000 {PINGS}").split()) == PINGS


def records(data: bytes) -> list[tuple[float, bytes]]:
    """Times and frames of a file, which must end with a whole record."""
    assert data[: len(HEADER)] == HEADER
    found, at = [], len(HEADER)
    while at < len(data):
        seconds, microseconds, kept, length = struct.unpack_from("<IIII", data, at)
        assert kept == length
        found.append((seconds + microseconds / 1e6, data[at + 16 : at + 16 + kept]))
        at += 16 + kept
    assert at == len(data)
    return found


def test_every_frame_of_one_link_in_order(pair: tuple[Any, Any]) -> None:
    """Requests and answers alternate; those before the capture are not in it."""
    ping(pair)
    into, began = io.BytesIO(), time.time()
    with open_capture("w0") as frames:
        ping(pair)
        found = capture(frames, into, seconds=0.05, most_bytes=10**6, steady=time.monotonic)
    data = into.getvalue()
    assert (found.frames, found.written_bytes, found.dropped) == (2 * PINGS, len(data), 0)
    assert found.ended == "time"
    frames_there = records(data)
    assert [frame[:14] for _, frame in frames_there] == PINGS * [
        W1 + W0 + b"\x08\x00",
        W0 + W1 + b"\x08\x00",
    ]
    for _, frame in frames_there:
        length, port = struct.unpack_from("!H", frame, 16)[0], frame[34:38]
        assert len(frame) == 14 + length  # an IPv4 packet, as the link has it
        assert frame[23] == 17
        assert struct.pack("!H", 7000) in (port[:2], port[2:])
    times = [at for at, _ in frames_there]
    assert times == sorted(times)
    assert began - 1e-3 <= times[0] <= times[-1] <= time.time()


def test_a_file_has_at_most_its_bytes(pair: tuple[Any, Any]) -> None:
    into = io.BytesIO()
    with open_capture("w0") as frames:
        ping(pair)
        first = len(frames.recv(100, 2))  # MSG_PEEK
        most = len(HEADER) + 3 * (16 + first) + 15
        found = capture(frames, into, seconds=60, most_bytes=most, steady=time.monotonic)
    assert (found.frames, found.ended) == (3, "size")
    assert len(records(into.getvalue())) == 3
    assert found.written_bytes == most - 15


def test_a_link_that_ends_ends_the_capture(pair: tuple[Any, Any]) -> None:
    into = io.BytesIO()
    with open_capture("w0") as frames:
        ping(pair)
        pair[0].peer.process.kill()
        found = capture(frames, into, seconds=60, most_bytes=10**6, steady=time.monotonic)
    assert found.ended == "link"
    assert len(records(into.getvalue())) == found.frames


def test_tcpdump_reads_it(pair: tuple[Any, Any], tmp_path: Path) -> None:
    if (tcpdump := shutil.which("tcpdump", path="/usr/bin:/usr/sbin")) is None:
        pytest.skip("needs tcpdump")
    file = tmp_path / "w0.pcap"
    with open_capture("w0") as frames, file.open("wb") as into:
        ping(pair)
        capture(frames, into, seconds=0.05, most_bytes=10**6, steady=time.monotonic)
    read = subprocess.run([tcpdump, "-nr", file], capture_output=True, text=True, check=True)
    lines = read.stdout.splitlines()
    assert len(lines) == 2 * PINGS
    assert "10.77.0.3.7000: " in lines[0]


def test_only_an_interface_can_be_captured(lab: Any) -> None:
    with pytest.raises(OSError, match="No such device"):
        open_capture("w7")
