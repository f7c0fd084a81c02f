"""TCP options that an interface receives."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import closing

import pytest

from testbed.host.namespaces import scratch
from testbed.host.syscalls import bring_loopback_up
from testbed.network.tcp_options import TcpOptions

pytestmark = pytest.mark.root

ETHERNET = bytes(12) + b"\x08\x00"
TCP, UDP = socket.IPPROTO_TCP, socket.IPPROTO_UDP


@pytest.fixture
def sender() -> Iterator[socket.socket]:
    """A socket whose frames the loopback interface of a new network namespace receives."""
    with scratch():
        bring_loopback_up()
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sender:
            sender.bind(("lo", 0))
            yield sender


def frame(words: int, *, protocol: int = TCP, ip_words: int = 5, payload: int = 0) -> bytes:
    """An Ethernet frame whose TCP header has this number of words of 32 bits."""
    length = 4 * (ip_words + words) + payload
    ip = struct.pack(">BBHHHBBH8x", 0x40 | ip_words, 0, length, 0, 0, 64, protocol, 0)
    tcp = struct.pack(">HHIIBBHHH", 5000, 5001, 1, 1, words << 4, 0x10, 512, 0, 0)
    whole = ip + bytes(4 * (ip_words - 5)) + tcp + bytes(4 * (words - 5) + payload)
    return ETHERNET + whole


def test_words_in_addition_to_time_stamps_are_counted(sender: socket.socket) -> None:
    """SACK of one, two and three blocks: 2 and 8 bytes each and 2 of padding, 12 + 20 + 28."""
    sender.send(frame(11))  # before
    with closing(TcpOptions("lo")) as options:
        for words in (11, 13, 15):
            sender.send(frame(words))
        assert options.take() == 60
        assert options.take() == 0
        sender.send(frame(10, ip_words=7, payload=1000))  # 8 bytes, after options of IP
        assert options.take() == 8


def test_other_packets_are_not_counted(sender: socket.socket) -> None:
    with closing(TcpOptions("lo")) as options:
        sender.send(frame(8, payload=1000))  # time stamps alone
        sender.send(frame(5))  # no options
        sender.send(frame(7))
        sender.send(frame(15, protocol=UDP))
        assert options.take() == 0


def test_nothing_is_missed_once_the_sockets_are_full(sender: socket.socket) -> None:
    with closing(TcpOptions("lo")) as options:
        for _ in range(1000):
            sender.send(frame(11, payload=1000))
        assert options.take() == 12_000


def test_a_missing_interface_is_an_error() -> None:
    with scratch(), pytest.raises(OSError, match="No such device"):
        TcpOptions("eth7")
