"""Datagrams between peers at addresses of the loopback interface."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from testbed.runtimes.agent.frames import PORT, exchange

ONE, TWO, ABSENT = "127.1.0.1", "127.1.0.2", "127.1.0.3"


def test_peers_hear_each_other_and_end_then_and_an_absent_one_is_not_heard() -> None:
    with ThreadPoolExecutor(2) as pool:
        there = pool.submit(exchange, TWO, [ONE], most_bytes=1450, within_seconds=30.0)
        here = exchange(ONE, [TWO], most_bytes=1450, within_seconds=30.0)
        assert here == {TWO: {"small", "large"}}
        assert there.result() == {ONE: {"small", "large"}}
    assert exchange(ONE, [ABSENT], most_bytes=1450, within_seconds=0.3) == {ABSENT: set()}


def test_the_packets_of_hundreds_of_hosts_are_no_larger() -> None:
    peers = [f"127.2.0.{number}" for number in range(1, 201)]
    with ExitStack() as stack, ThreadPoolExecutor(1) as pool:
        sockets = [stack.enter_context(socket.socket(type=socket.SOCK_DGRAM)) for _ in peers]
        for one, peer in zip(sockets, peers, strict=True):
            one.bind((peer, PORT))
            one.settimeout(30.0)
        exchanging = pool.submit(exchange, ONE, peers, most_bytes=1450, within_seconds=30.0)
        sockets[0].recv(2**16)  # it is there now
        while not exchanging.done():
            for one in sockets:
                for size in (26, 1422):
                    one.sendto(b"\xff" * size, (ONE, PORT))
        assert exchanging.result() == {peer: {"small", "large"} for peer in peers}
        sockets[0].setblocking(False)
        sizes = set()
        try:
            while packet := sockets[0].recv(2**16):
                sizes.add(len(packet))
        except BlockingIOError:
            pass
        assert sizes == {26, 1422}
