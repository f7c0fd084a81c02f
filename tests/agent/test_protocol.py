"""The control protocol over a real pair of sockets."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.agent.protocol import LINE_BYTES, Connection, Message
from testbed.runtimes.sockets import short_path

Pair = tuple[Connection, Connection]


@pytest.fixture
def pair() -> Iterator[Pair]:
    here, there = (Connection(end) for end in socket.socketpair())
    yield here, there
    here.close()
    there.close()


def test_a_message_arrives_with_its_process(pair: Pair) -> None:
    here, there = pair
    here.send(Message({"operation": "links"}))
    assert there.receive() == Message({"operation": "links"}, os.getpid())


@pytest.mark.root
def test_a_message_may_be_about_another_process(pair: Pair) -> None:
    here, there = pair
    here.send(Message({"result": None}, os.getppid()))
    assert there.receive() == Message({"result": None}, os.getppid())


def test_a_long_message_arrives_in_parts(pair: Pair) -> None:
    here, there = pair
    content = {"text": "x" * 100_000}
    here.send(Message(content))
    parts = 0
    while (message := there.receive()) is None:
        parts += 1
    assert message.content == content
    assert parts >= 1


def test_the_end_and_nonsense_are_told_apart(pair: Pair) -> None:
    here, there = pair
    for line in (b"no json\n", b"[1, 2]\n", b"\xff\xfe\n"):
        here.socket.sendall(line)
        with pytest.raises(ValueError):
            there.receive()
    here.close()
    with pytest.raises(EOFError):
        there.receive()


def test_a_line_without_an_end_is_refused(pair: Pair) -> None:
    here, there = pair
    here.socket.setblocking(False)
    chunk = b"x" * 65536
    with pytest.raises(ValueError, match="a line of more than"):
        for _ in range(LINE_BYTES):
            try:
                here.socket.send(chunk)
            except BlockingIOError:
                there.receive()


def test_a_socket_is_reached_by_a_short_name(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as client:
        with short_path(deep / "agent.sock") as name:
            listener.bind(name)
        listener.listen()
        with short_path(deep / "agent.sock") as name:
            client.connect(name)
    assert (deep / "agent.sock").is_socket()
