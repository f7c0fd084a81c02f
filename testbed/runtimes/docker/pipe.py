"""A stream to an agent on another host: one command in its container, over the engine's API."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.errors import NodeError
from testbed.host.terminal import STDOUT
from testbed.runtimes.agent.client import REPLY_BYTES
from testbed.runtimes.agent.lines import Lines
from testbed.runtimes.docker.containers import AGENT
from testbed.runtimes.docker.engine import container_faults, socket_path
from testbed.runtimes.docker.lifecycle import containers_of
from testbed.runtimes.docker.session import Frames, begin
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
    agents = [one for one in containers_of(engine, folder, host.controller) if one.role == AGENT]
    if not agents:
        raise NodeError(f"the agent of {folder.name} was removed.")
    whose = f"the agent on {host.name}"
    with container_faults(whose), ExitStack() as undone:
        command = [*RELAY, *map(str, paths)]
        made = engine.exec_create(agents[0].identity, command, stdin=True)["Id"]
        peer = undone.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        peer.connect(socket_path(host.engine))
        begin(peer, f"/v{engine.api_version}/exec/{made}/start", node=whose, terminal=False)
        undone.pop_all()
    lines = Lines.over(peer, line_bytes=REPLY_BYTES)
    lines.unpack = output_of()
    return lines


def output_of() -> Callable[[bytes], bytes]:
    """Return a function that extracts standard output from the frames of a command's streams."""
    frames = Frames()

    def unpack(data: bytes) -> bytes:
        return b"".join(piece for stream, piece in frames.unpack(data) if stream == STDOUT)

    return unpack
