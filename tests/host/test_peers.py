"""Connecting on loopback to a peer that is late, missing, or does not answer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from testbed.errors import NodeError
from testbed.host.sockets import connect

HOST = "127.0.0.1"


@contextmanager
def reserved() -> Iterator[socket.socket]:
    """A socket with a port that does not listen: connections to it are refused."""
    with socket.socket() as reserve:
        reserve.bind((HOST, 0))
        yield reserve


@contextmanager
def overrun() -> Iterator[int]:
    """The port of a listener that accepts no connection and has a full queue."""
    with ExitStack() as opened:
        listener = opened.enter_context(socket.create_server((HOST, 0), backlog=0))
        port = listener.getsockname()[1]
        while True:
            waiting = opened.enter_context(socket.socket())
            waiting.settimeout(0.2)
            try:
                waiting.connect((HOST, port))
            except TimeoutError:
                break
        yield port


def test_a_late_listener_is_awaited() -> None:
    with reserved() as late:
        with pytest.raises(NodeError):  # it does not listen yet
            connect(*late.getsockname(), patience_seconds=0.0)
        opening = threading.Timer(0.1, late.listen)
        opening.start()
        with connect(*late.getsockname(), patience_seconds=20.0) as peer:
            assert peer.gettimeout() == 20.0
            accepted, _ = late.accept()
            with accepted:
                peer.sendall(b"here")
                assert accepted.recv(4) == b"here"
        opening.join()


def test_a_missing_listener_is_an_error_with_address_and_duration() -> None:
    with reserved() as never:
        port = never.getsockname()[1]
        with pytest.raises(NodeError) as gone:
            connect(HOST, port, patience_seconds=0.1)
    assert gone.value.message == (
        f"127.0.0.1:{port}: no connection was accepted within 0.1 s (connection refused)."
    )
    assert "does not listen" in gone.value.hint


def test_a_peer_that_does_not_answer_times_out_at_the_same_time() -> None:
    with overrun() as port, pytest.raises(NodeError, match=r"within 0\.3 s \(no answer\)"):
        connect(HOST, port, patience_seconds=0.3)


def test_an_unreachable_address_fails_at_once() -> None:
    with pytest.raises(OSError):  # which of them depends on the host's routes
        connect("255.255.255.255", 1, patience_seconds=600.0)
