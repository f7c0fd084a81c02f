"""What the agent sends to the template for every node, with three descriptors beside it."""

from __future__ import annotations

import socket
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter

from testbed.agent.launch import LaunchSpec
from testbed.host.process import Process

REQUEST_BYTES = 128 * 1024
"""More than any request; the kernel's default socket buffer holds it."""


@dataclass(frozen=True)
class Placement:
    """How a process becomes one of a node's.

    Attributes:
        entrances: files of the node's control groups into which it writes 0.
        nice: its nice value, where no control group can give it a CPU weight.
        container: whose namespaces it enters; None to make the node's own.
    """

    entrances: tuple[Path, ...]
    nice: int = 0
    container: Process | None = None


@dataclass(frozen=True)
class SpawnRequest:
    """One node to bring up.

    Attributes:
        launch: what the controller asked for, without the neighbours.
        run_folder: hidden in the node.
        private: folders that are hidden as well, but for what the interpreter needs.
        report: descriptor of the pipe in which the new processes report; see ReportPipe.
        gate: of the pipe in which a byte arrives once the role may run.
        log: of the node's log file.
    """

    launch: LaunchSpec
    placement: Placement
    run_folder: Path
    private: tuple[Path, ...]
    report: int
    gate: int
    log: int

    @staticmethod
    def receive(channel: socket.socket) -> SpawnRequest | None:
        """Wait for the next request; None once the agent has ended."""
        data, descriptors, _, _ = socket.recv_fds(channel, REQUEST_BYTES, 3)
        if not data:
            return None
        report, gate, log = descriptors
        return replace(_REQUEST.validate_json(data), report=report, gate=gate, log=log)

    def send(self, channel: socket.socket) -> None:
        """Send it to the template, which gets descriptors of its own."""
        data = _REQUEST.dump_json(self)
        socket.send_fds(channel, [data], [self.report, self.gate, self.log])


_REQUEST = TypeAdapter(SpawnRequest)
