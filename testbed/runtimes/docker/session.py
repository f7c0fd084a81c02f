"""Runs one command in a container, with this process's terminal or its streams."""

from __future__ import annotations

import json
import os
import select
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING

from testbed.errors import NodeError
from testbed.host.terminal import STDERR, STDIN, STDOUT, is_terminal, raw, write
from testbed.runtimes.docker.engine import CALL_SECONDS, container_faults, explain, socket_path

if TYPE_CHECKING:
    from docker import APIClient

CHUNK_BYTES = 65536
HEADER_BYTES = 8
"""Without a terminal, each frame of output begins with its stream's number and its length."""

SWITCHING_PROTOCOLS = 101
NOT_FOUND = 127
NO_SUCH_COMMAND = b"executable file not found"
"""The engine's output then, as if the command printed it; its status depends on the release."""

Unpack = Callable[[bytes], Iterable[tuple[int, bytes]]]
"""Splits received data into payloads with the number of their stream."""


def run_in(
    engine: APIClient,
    identity: str,
    command: Sequence[str],
    *,
    node: str,
    address: str | None = None,
) -> int:
    """Run a command in a node's container, as the container's user; return its exit status.

    ``address`` is that of the engine's socket, if it is not the one at DOCKER_HOST.

    Raises:
        HostError, NodeError: the engine rejects it or vanishes.
    """
    terminal = is_terminal()
    term = {"TERM": os.environ["TERM"]} if terminal and "TERM" in os.environ else None
    with container_faults(node), ExitStack() as held:
        made = engine.exec_create(
            identity, list(command), stdin=True, tty=terminal, environment=term
        )["Id"]
        peer = held.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        peer.connect(socket_path(address))
        begin(peer, f"/v{engine.api_version}/exec/{made}/start", node=node, terminal=terminal)
        if terminal:
            resize = partial(_resize, engine, made)
            held.enter_context(raw(resize))
            last = _carry(peer, lambda data: [(STDOUT, data)], begun=resize)
        else:
            last = _carry(peer, Frames().unpack, begun=lambda: None)
        status = engine.exec_inspect(made)["ExitCode"]
    if status and NO_SUCH_COMMAND in last:
        return NOT_FOUND
    if status is None:
        raise NodeError(f"{node}: the connection to the command was lost.")
    return int(status)


def output_of(
    engine: APIClient,
    identity: str,
    command: Sequence[str],
    *,
    node: str,
    address: str | None,
    within_seconds: float,
) -> Iterator[tuple[int, bytes]]:
    """Run a command in a container; yield its output in pieces, each with its stream.

    A command that is silent for CALL_SECONDS longer than it should take has lost its container,
    whose engine may leave the connection open.

    Raises:
        HostError, NodeError: the engine rejects it or vanishes.
    """
    frames = Frames()
    with container_faults(node), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        made = engine.exec_create(identity, list(command))["Id"]
        peer.connect(socket_path(address))
        begin(peer, f"/v{engine.api_version}/exec/{made}/start", node=node, terminal=False)
        peer.settimeout(within_seconds + CALL_SECONDS)
        while data := peer.recv(CHUNK_BYTES):
            yield from frames.unpack(data)


def begin(peer: socket.socket, path: str, *, node: str, terminal: bool) -> None:
    """Start the command; from then on its streams go through the connection.

    The engine's client could do this too, but loses output that directly follows the header.
    """
    options: dict[str, object] = {"Detach": False, "Tty": terminal}
    if terminal:
        size = os.get_terminal_size(STDOUT)
        options["ConsoleSize"] = [size.lines, size.columns]  # older engines ignore it
    body = json.dumps(options)
    header = (
        f"POST {path} HTTP/1.1\r\nHost: docker\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"
    )
    peer.settimeout(CALL_SECONDS)
    peer.sendall(f"{header}{body}".encode())
    status = read_status(peer)
    if status != SWITCHING_PROTOCOLS:
        reason = peer.recv(CHUNK_BYTES).decode(errors="replace")
        raise explain(node, status, reason)
    peer.settimeout(None)


def read_status(peer: socket.socket) -> int:
    """Read the header of an engine's answer, and nothing that follows it; return the status."""
    header = b""
    while not header.endswith(b"\r\n\r\n"):
        byte = peer.recv(1)
        if not byte:
            raise ConnectionResetError("the engine closed the connection")
        header += byte
    return int(header.split(None, 2)[1])


def _carry(peer: socket.socket, unpack: Unpack, *, begun: Callable[[], None]) -> bytes:
    """Carry this process's input to the command and its output back, until it ends.

    ``begun`` is called when the command prints for the first time. Returns the last
    piece of output.
    """
    poller = select.poll()
    for descriptor in (STDIN, peer.fileno()):
        poller.register(descriptor, select.POLLIN)
    last = b""
    while True:
        ready = [descriptor for descriptor, _ in poller.poll()]
        if peer.fileno() in ready:
            data = peer.recv(CHUNK_BYTES)
            if not data:
                return last
            if not last:
                begun()
            for stream, piece in unpack(data):
                write(STDERR if stream == STDERR else STDOUT, piece)
                last = piece
        if STDIN in ready and not _pass_on(peer):
            poller.unregister(STDIN)


def _pass_on(peer: socket.socket) -> bool:
    """Forward this process's input; return False at its end, which is forwarded as well."""
    data = os.read(STDIN, CHUNK_BYTES)
    try:
        if data:
            peer.sendall(data)
        else:
            peer.shutdown(socket.SHUT_WR)
    except BrokenPipeError:  # the command has ended, but its last output is still unread
        return False
    return bool(data)


class Frames:
    """Demultiplexes the interleaved streams."""

    def __init__(self) -> None:
        self._partial = b""

    def unpack(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Return the frames that are complete by now."""
        self._partial += data
        while len(self._partial) >= HEADER_BYTES:
            end = HEADER_BYTES + int.from_bytes(self._partial[4:HEADER_BYTES], "big")
            if len(self._partial) < end:
                return
            yield self._partial[0], self._partial[HEADER_BYTES:end]
            self._partial = self._partial[end:]


def _resize(engine: APIClient, made: str) -> None:
    """Resize the command's terminal to the size of this process's."""
    from docker.errors import APIError

    size = os.get_terminal_size(STDOUT)
    with suppress(APIError):  # the command has just ended
        engine.exec_resize(made, size.lines, size.columns)
