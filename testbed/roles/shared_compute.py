"""A worker's gradients, computed by a process that it shares with other workers."""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress
from pathlib import Path

from testbed.algorithms.frame.actions import Step
from testbed.algorithms.frame.compute import Gradient
from testbed.errors import NodeError
from testbed.host.sockets import RETRY_SECONDS, short_path
from testbed.payloads import Vector
from testbed.roles.segment import MESSAGE_BYTES, WELCOME, Segment, request_of, result_in


class SharedCompute:
    """Asks the node ``compute`` for gradients, one at a time, over a connection of its own.

    If that node ends before it has answered, the worker connects to the next one, and asks again.

    Attributes:
        parameters: float32 (N,), in the shared memory: parameters elsewhere are copied there.

    Args:
        path: the socket.
        token: the worker's token there.
        size: number of parameters.
        patience_seconds: real time to wait for a process that accepts the connection.
    """

    def __init__(self, path: Path, token: str, *, size: int, patience_seconds: float) -> None:
        self._path, self._token, self._patience = path, token, patience_seconds
        self._segment, self._memory = Segment.create(size)
        self.parameters = self._segment.parameters
        self._peer = self._connect()

    def gradient(self, step: Step, at: Vector) -> Gradient:
        """Return a gradient; see Compute.

        Raises:
            UserCodeError: the user's own code failed.
            NodeError: no process accepts connections, or the step has too many samples.
        """
        request, began = request_of(step), time.monotonic()
        if at is not self.parameters:
            self.parameters[:] = at
        while not (answer := self._ask(request)):
            self._peer.close()
            self._peer = self._connect()
        loss, computed = result_in(answer)
        queued = max(0.0, time.monotonic() - began - computed)
        return Gradient(loss, self._segment.gradient, queued)

    def close(self) -> None:
        """Close the connection."""
        self._peer.close()
        os.close(self._memory)

    def _ask(self, request: bytes) -> bytes:
        """Return the answer to a request; empty if the process has ended."""
        try:
            self._peer.send(request)
            return self._peer.recv(MESSAGE_BYTES)
        except ConnectionError:
            return b""

    def _connect(self) -> socket.socket:
        """Connect, and pass the memory.

        Raises:
            NodeError: no process accepted the connection in time.
        """
        deadline = time.monotonic() + self._patience
        while True:
            peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with suppress(FileNotFoundError, ConnectionError):  # it has not started, or has ended
                with short_path(self._path) as name:
                    peer.connect(name)
                socket.send_fds(peer, [self._token.encode()], [self._memory])
                if peer.recv(MESSAGE_BYTES) == WELCOME:
                    return peer
            peer.close()
            if time.monotonic() >= deadline:
                raise NodeError(
                    f"{self._path}: no connection was accepted within {self._patience:g} s.",
                    hint="The log of the node compute shows why.",
                )
            time.sleep(RETRY_SECONDS)  # there is no notification of a socket that opens
