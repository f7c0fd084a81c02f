"""Datagrams between peers at addresses of the loopback interface."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from testbed.runtimes.agent.frames import exchange

ONE, TWO, ABSENT = "127.1.0.1", "127.1.0.2", "127.1.0.3"


def test_peers_hear_each_other_and_end_then_and_an_absent_one_is_not_heard() -> None:
    with ThreadPoolExecutor(2) as pool:
        there = pool.submit(exchange, TWO, [ONE], most_bytes=1450, within_seconds=30.0)
        here = exchange(ONE, [TWO], most_bytes=1450, within_seconds=30.0)
        assert here == {TWO: {"small", "large"}}
        assert there.result() == {ONE: {"small", "large"}}
    assert exchange(ONE, [ABSENT], most_bytes=1450, within_seconds=0.3) == {ABSENT: set()}
