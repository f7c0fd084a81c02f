"""What the agent sends to the template for every node, with three descriptors beside it."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from pydantic import TypeAdapter

from testbed.agent.launch import Launch
from testbed.runtimes.process import Process

ORDER_BYTES = 128 * 1024
"""More than any order; the kernel's default socket buffer holds it."""


@dataclass(frozen=True)
class Way:
    """How a process becomes one of a node's.

    Attributes:
        entrances: files of the node's control groups into which it writes 0.
        nice: how far it stands back for others, where no control group says it.
        container: whose namespaces it enters; None to make the node's own.
    """

    entrances: tuple[Path, ...]
    nice: int = 0
    container: Process | None = None


@dataclass(frozen=True)
class Order:
    """One node to bring up.

    Attributes:
        launch: what the controller asked for, without the neighbours.
        way: into what holds the node together.
        run_folder: hidden in the node.
        private: folders that are hidden as well, but for what the interpreter needs.
    """

    launch: Launch
    way: Way
    run_folder: Path
    private: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Delivery:
    """An order with its descriptors, as the template has received it.

    Attributes:
        order: see Order.
        report: pipe in which the new processes report; see ReportPipe.
        gate: pipe in which a byte arrives once the role may run.
        log: the node's log file.
    """

    order: Order
    report: int
    gate: int
    log: int

    @classmethod
    def receive(cls, channel: socket.socket) -> Self | None:
        """Wait for the next order; None once the agent has ended."""
        data, descriptors, _, _ = socket.recv_fds(channel, ORDER_BYTES, 3)
        if not data:
            return None
        report, gate, log = descriptors
        return cls(_ORDER.validate_json(data), report, gate, log)

    def send(self, channel: socket.socket) -> None:
        """Send it to the template, which gets descriptors of its own."""
        data = _ORDER.dump_json(self.order)
        socket.send_fds(channel, [data], [self.report, self.gate, self.log])


_ORDER = TypeAdapter(Order)
