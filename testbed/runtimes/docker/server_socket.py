"""The parameter server's socket on this host, while that server is on another one.

The controller reports the ends of workers there. Each connection is carried by a command in the
container of that host's agent.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from threading import Event, Thread

from testbed.errors import TestbedError
from testbed.host.sockets import short_path
from testbed.runtimes.agent.relay import carry
from testbed.runtimes.docker.engine import connect
from testbed.runtimes.docker.pipe import find_agent, open_stream, output_of
from testbed.telemetry.folder import RunFolder
from testbed.values.topology import HostSpec

RETRY_SECONDS = 1.0
"""Pause after a connection could not be accepted, as for want of descriptors; it waits for it."""


class ServerSocket:
    """Listens in place of the parameter server, and forwards to the host that has it.

    Raises:
        OSError: the socket cannot be created.
    """

    def __init__(self, host: HostSpec, folder: RunFolder) -> None:
        self._host, self._folder = host, folder
        self._closed = Event()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        folder.ps_socket.unlink(missing_ok=True)  # of a start that was killed
        with short_path(folder.ps_socket) as name:
            self._listener.bind(name)
        self._listener.listen()
        Thread(target=self._serve, name="server socket", daemon=True).start()

    def close(self) -> None:
        """Accept no more connections. Idempotent."""
        self._closed.set()
        with suppress(OSError):  # closed already
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._folder.ps_socket.unlink(missing_ok=True)

    def _serve(self) -> None:
        while not self._closed.is_set():
            try:
                near, _ = self._listener.accept()
            except OSError:
                self._closed.wait(RETRY_SECONDS)
            else:
                Thread(target=self._forward, args=(near,), daemon=True).start()

    def _forward(self, near: socket.socket) -> None:
        """Carry a connection; one that cannot be is closed, as by a server that has ended."""
        with near, suppress(OSError, TestbedError), connect(self._host.engine) as engine:
            agent = find_agent(engine, self._host, self._folder)
            with open_stream(engine, self._host, agent, [self._folder.ps_socket]) as far:
                carry(far.fileno(), far.fileno(), near, unpack=output_of())
