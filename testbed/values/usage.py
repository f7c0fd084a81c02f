"""Usage of the links' queues and the containers at one time, read only for metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Queue(NamedTuple):
    """A qdisc: packets dropped since its creation, and bytes that it holds now."""

    dropped_packets: int
    backlog_bytes: int


class ContainerUse(NamedTuple):
    """Resource usage of a container; None without a control group."""

    cpu_seconds: float | None
    memory_bytes: int | None


@dataclass(frozen=True)
class Usage:
    """A reading, by node name.

    Attributes:
        round_trips: TCP's smoothed round trips at the parameter server's sockets, real seconds.
        down: queues of the switch's ends, towards the nodes.
        up: queues of the nodes' own ends; only the parameter server's is read.
        containers: usage of the running nodes.
    """

    round_trips: Mapping[str, float] = field(default_factory=dict)
    down: Mapping[str, Queue] = field(default_factory=dict)
    up: Mapping[str, Queue] = field(default_factory=dict)
    containers: Mapping[str, ContainerUse] = field(default_factory=dict)
