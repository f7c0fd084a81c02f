"""What the links' queues hold and the containers use at a moment: read for metrics alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Queue(NamedTuple):
    """A qdisc: packets that it has dropped since it was made, and bytes that wait in it now."""

    dropped_packets: int
    backlog_bytes: int


class ContainerUse(NamedTuple):
    """What a container has used; None for what no control group tells."""

    cpu_seconds: float | None
    memory_bytes: int | None


@dataclass(frozen=True)
class Usage:
    """A reading, everything by the node's name.

    Attributes:
        round_trips: TCP's smoothed round trips at the parameter server's sockets, real seconds.
        down: queues of the switch's ends, towards the nodes.
        up: queues of the nodes' own ends; the parameter server's alone is read.
        containers: of the nodes that run.
    """

    round_trips: Mapping[str, float] = field(default_factory=dict)
    down: Mapping[str, Queue] = field(default_factory=dict)
    up: Mapping[str, Queue] = field(default_factory=dict)
    containers: Mapping[str, ContainerUse] = field(default_factory=dict)
