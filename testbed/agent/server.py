"""The control server: one thread that waits for everything the agent has to react to."""

from __future__ import annotations

import os
import selectors
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from testbed.agent.nodes import Nodes
from testbed.agent.operations import answer
from testbed.agent.protocol import Connection
from testbed.runtimes.sockets import short_path

ANSWER_SECONDS = 10.0
"""A client that does not take its answer within this is dropped."""


class Server:
    """Serves clients, one request after the other, until the lifeline ends.

    Args:
        nodes: what the clients' requests are about.
        socket_path: where clients connect; its owner only.
    """

    def __init__(self, nodes: Nodes, socket_path: Path) -> None:
        self._nodes = nodes
        self._selector = selectors.DefaultSelector()
        self._running = True
        self._listener = listen(socket_path)
        self.watch(self._listener.fileno(), self._accept)
        self.watch(_wake_on_child(), self._reap)

    def watch(self, descriptor: int, react: Callable[[int], None]) -> None:
        """Call ``react`` whenever there is something to read from a descriptor."""
        self._selector.register(descriptor, selectors.EVENT_READ, react)

    def forget(self, descriptor: int) -> None:
        """Take no more notice of a descriptor."""
        self._selector.unregister(descriptor)

    def stop(self) -> None:
        """Let ``serve`` return."""
        self._running = False

    def serve(self) -> None:
        """React, until ``stop`` is called."""
        while self._running:
            for key, _ in self._selector.select(self._nodes.due_in_seconds()):
                if key.fd in self._selector.get_map():  # an earlier reaction may have closed it
                    key.data(key.fd)
            self._nodes.do_due()

    def _accept(self, _: int) -> None:
        peer, _address = self._listener.accept()
        peer.settimeout(ANSWER_SECONDS)
        connection = Connection(peer)
        self.watch(connection.fileno(), lambda _: self._serve_client(connection))

    def _serve_client(self, connection: Connection) -> None:
        try:
            request = connection.receive()
            if request is None:
                return
            connection.send(answer(request.content, self._nodes))
        except (OSError, EOFError, ValueError):
            # The client has gone, or is none of ours: nothing of the run depends on it.
            self.forget(connection.fileno())
            connection.close()

    def _reap(self, wakeup: int) -> None:
        with suppress(BlockingIOError):
            os.read(wakeup, 4096)
        self._nodes.reap()


def listen(path: Path) -> socket.socket:
    """A listening unix socket that only its owner can connect to; its path may be a long one.

    Raises:
        OSError: it cannot be made there.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        with short_path(path) as name:
            listener.bind(name)
    finally:
        os.umask(before)
    listener.listen()
    return listener


def _wake_on_child() -> int:
    """A descriptor with something to read after a child has ended."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    return reader
