"""Reading /metrics: real sockets on this host's loopback stand for those in a node."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from threading import Thread

from testbed.runtimes.agent.scrapes import (
    MOST_BYTES,
    MOST_TAKEN_BYTES,
    Endpoint,
    Scraped,
    Scrapes,
)

OK = b"HTTP/1.0 200 OK\r\n\r\n"


def scrapes(now: list[float]) -> Scrapes:
    return Scrapes(
        lambda node: socket.socket(socket.AF_INET, socket.SOCK_STREAM), clock=lambda: now[0]
    )


def serve(listener: socket.socket, replies: int, body: Callable[[socket.socket], None]) -> Thread:
    """Answer requests in a thread, one after the other."""

    def run() -> None:
        for _ in range(replies):
            peer, _ = listener.accept()
            with peer:
                assert peer.recv(4096).startswith(b"GET /metrics HTTP/1.0\r\n")
                body(peer)

    thread = Thread(target=run)
    thread.start()
    return thread


def collect(subject: Scrapes, count: int) -> list[Scraped]:
    found: list[Scraped] = []
    deadline = time.monotonic() + 10.0
    while len(found) < count and time.monotonic() < deadline:
        found += subject.proceed([])
        time.sleep(0.005)
    return found


def test_replies_come_complete_while_others_are_silent() -> None:
    now = [0.0]
    subject = scrapes(now)
    with (
        socket.create_server(("127.0.0.1", 0)) as good,
        socket.create_server(("127.0.0.1", 0)) as silent,
    ):
        thread = serve(good, 1, lambda peer: peer.sendall(OK + b"a 1\n"))
        ends = [Endpoint("n0", one.getsockname()[1]) for one in (good, silent)]
        first = subject.proceed(ends)
        assert [*first, *collect(subject, 1 - len(first))] == [
            Scraped(ends[0], (OK + b"a 1\n").decode())
        ]
        thread.join()
        now[0] = 2.0
        assert subject.proceed([ends[1]]) == []  # still in progress: it is not begun twice
        now[0] = 2.1
        (late,) = subject.proceed([])
        assert late.endpoint == ends[1]
        assert late.failure == "it did not answer completely within 2 s"
    refused = subject.proceed([ends[1]]) or collect(subject, 1)
    assert [one.failure for one in refused] == ["nothing listens there"]


def test_a_reply_without_end_is_cut_off() -> None:
    def flood(peer: socket.socket) -> None:
        try:
            while True:
                peer.sendall(b"x" * 65536)
        except OSError:  # the other side has had enough
            return

    subject = scrapes([0.0])
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = serve(listener, 1, flood)
        found = subject.proceed([Endpoint("n0", listener.getsockname()[1])])
        (one,) = [*found, *collect(subject, 1 - len(found))]
        thread.join(10.0)
    assert one.failure == "it answered with more than 262,144 bytes"
    assert one.reply == ""


def test_one_call_returns_a_bounded_size() -> None:
    subject = scrapes([0.0])
    large = "x" * MOST_BYTES
    subject._done = [Scraped(Endpoint(f"n{n}", 80), large) for n in range(6)]
    assert len(subject.proceed([])) == MOST_TAKEN_BYTES // MOST_BYTES
    assert len(subject.proceed([])) == 2
