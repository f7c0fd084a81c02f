"""Streams to sockets on another host: commands in its agent's container, by the engine's API."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.errors import NodeError
from testbed.host.terminal import STDOUT
from testbed.runtimes.agent.client import REPLY_BYTES
from testbed.runtimes.agent.lines import Lines
from testbed.runtimes.docker.containers import AGENT
from testbed.runtimes.docker.engine import CALL_SECONDS, container_faults, socket_path
from testbed.runtimes.docker.lifecycle import containers_of
from testbed.runtimes.docker.session import Frames, begin, read_status
from testbed.telemetry.folder import RunFolder
from testbed.values.topology import HostSpec

if TYPE_CHECKING:
    from docker import APIClient

RELAY = ("python", "-P", "-m", "testbed.runtimes.agent.relay")


def open_pipe(engine: APIClient, host: HostSpec, folder: RunFolder, paths: Sequence[Path]) -> Lines:
    """Return a stream to one of the sockets of a run's agent on another host.

    Args:
        engine: of that host.
        host: the host.
        folder: of the run.
        paths: arguments of ``relay``: the socket's path in the agent's container.

    Raises:
        HostError, NodeError: the engine does not answer, or has no such agent.
    """
    agent = find_agent(engine, host, folder)
    with container_faults(f"the agent on {host.name}"), ExitStack() as undone:
        peer = undone.enter_context(open_stream(engine, host, agent, paths))
        lines = Lines.over(peer, line_bytes=REPLY_BYTES)
        lines.unpack = output_of()
        undone.callback(lines.close)
        lines.other_end = _end_of(engine, host, agent)
        undone.pop_all()
    return lines


def open_stream(
    engine: APIClient, host: HostSpec, agent: str, paths: Sequence[Path]
) -> socket.socket:
    """Return a stream to a socket, whose data arrive in frames; ``agent``: of ``find_agent``.

    The other arguments, and the errors, are those of ``open_pipe``.
    """
    whose, command = f"the agent on {host.name}", [*RELAY, *map(str, paths)]
    with container_faults(whose), ExitStack() as undone:
        made = engine.exec_create(agent, command, stdin=True)["Id"]
        peer = undone.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        peer.connect(socket_path(host.engine))
        begin(peer, f"/v{engine.api_version}/exec/{made}/start", node=whose, terminal=False)
        undone.pop_all()
    return peer


def find_agent(engine: APIClient, host: HostSpec, folder: RunFolder) -> str:
    """Return the identity of the agent's container; NodeError if there is none."""
    for found in containers_of(engine, folder, host.controller):
        if found.role == AGENT:
            return found.identity
    raise NodeError(f"the agent of {folder.name} was removed.")


def _end_of(engine: APIClient, host: HostSpec, identity: str) -> int:
    """Return a descriptor that becomes readable when a container has ended.

    If a container ends, some engines leave the streams of its other commands open.
    """
    with ExitStack() as undone:
        peer = undone.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        peer.settimeout(CALL_SECONDS)
        peer.connect(socket_path(host.engine))
        path = f"/v{engine.api_version}/containers/{identity}/wait"
        peer.sendall(f"POST {path} HTTP/1.1\r\nHost: docker\r\nContent-Length: 0\r\n\r\n".encode())
        if (status := read_status(peer)) != HTTPStatus.OK:
            raise ConnectionResetError(f"the engine answered {status}")
        undone.pop_all()
    return peer.detach()


def output_of() -> Callable[[bytes], bytes]:
    """Return a function that extracts standard output from the frames of a command's streams."""
    frames = Frames()

    def unpack(data: bytes) -> bytes:
        return b"".join(piece for stream, piece in frames.unpack(data) if stream == STDOUT)

    return unpack
