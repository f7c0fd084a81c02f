"""A lab: a switch in a namespace of the test, and nodes that are small processes."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from testbed.host.namespaces import inside, scratch
from testbed.host.syscalls import bring_loopback_up
from testbed.network import tc
from testbed.network.attached import AttachedLink
from testbed.network.interfaces import Interface, Neighbour
from testbed.network.rtnetlink import Flag, Kind, request
from testbed.network.switch import Switch
from testbed.values.topology import Direction, LinkSpec, NetworkSpec, NodeSpec, TrainingRole

PEER = Path(__file__).parent / "peer.py"


class Peer:
    """A process in its own network namespace; ended by closing its stdin, or by its id."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-SE", str(PEER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._line() == "ready"
        with inside(self.pid):
            bring_loopback_up()

    @property
    def pid(self) -> int:
        """The pid as seen by the test."""
        return self.process.pid

    def tell(self, command: str) -> str:
        """Send a command and wait for the reply."""
        assert self.process.stdin is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self._line()

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


@dataclass
class Node:
    """A node of the lab: its plan, its process, its link."""

    spec: NodeSpec
    peer: Peer
    link: AttachedLink


class QdiscCounters(NamedTuple):
    """Counts of a root qdisc since it was installed: every segment's header counts."""

    bytes: int
    packets: int
    drops: int


UNSHAPED = Direction()


def node_spec(
    name: str,
    number: int,
    *,
    up: Direction = UNSHAPED,
    down: Direction = UNSHAPED,
    role: str = "worker",
    mtu: int | None = None,
) -> NodeSpec:
    """A node whose address is 10.77.<number>."""
    high, low = divmod(number, 256)
    link = LinkSpec(f"10.77.{high}.{low}", f"02:00:0a:4d:{high:02x}:{low:02x}", up, down, mtu=mtu)
    device_class = "slow" if role == "worker" else ""
    parts: dict[str, TrainingRole] = {"ps": "server", "worker": "client"}
    part = parts.get(role, "aside")
    return NodeSpec(name, role, number, device_class, link, None, None, 1, 1000 + number, part=part)


class Lab:
    """A PS and workers on a switch."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.switch = Switch.build()
        self.network = NetworkSpec()

    def node(self, spec: NodeSpec, *others: NodeSpec, tell: str = "") -> Node:
        """Start a node, tell it something, and attach it; ``others`` are its neighbours."""
        peer = self._stack.enter_context(Peer())
        if tell:
            peer.tell(tell)
        links = [other.link for other in others if other.link is not None]
        neighbours = [Neighbour(link.address, link.mac) for link in links]
        self.switch.attach(spec, pid=peer.pid, network=self.network, neighbours=neighbours)
        link = self.switch.inspect(spec, pid=peer.pid, network=self.network)
        return Node(spec, peer, link)

    def pair(self, *, up: Direction = UNSHAPED, down: Direction = UNSHAPED) -> tuple[Node, Node]:
        """A PS that serves port 5000, and one connected worker behind a shaped link."""
        ps, worker = node_spec("ps", 1, role="ps"), node_spec("w0", 2, up=up, down=down)
        server, client = self.node(ps, worker), self.node(worker, ps)
        assert server.peer.tell("serve 5000") == "serving"
        assert client.peer.tell("connect 10.77.0.1 5000") == "connected"
        return server, client

    def rate_through(self, end: Interface, seconds: float) -> float:
        """Bits per second of Ethernet frames that leave an interface while it is kept busy."""
        before, begin = self.counted(end).bytes, time.monotonic()
        time.sleep(seconds)
        passed = self.counted(end).bytes - before
        return passed * 8 / (time.monotonic() - begin)

    @staticmethod
    def counted(end: Interface) -> QdiscCounters:
        """The kernel's counts at the root qdisc of an interface."""
        (root,) = end.rtnetlink.ask(
            request(Kind.GET_QDISC, Flag.ECHO, index=end.index, parent=tc.ROOT)
        )
        statistics = root.get_attr("TCA_STATS2")
        basic, queue = (statistics.get_attr(f"TCA_STATS_{part}") for part in ("BASIC", "QUEUE"))
        return QdiscCounters(basic["bytes"], basic["packets"], queue["drops"])


@pytest.fixture
def lab() -> Iterator[Lab]:
    """A lab in namespaces of this test; they end with it."""
    with ExitStack() as stack:
        stack.enter_context(scratch())
        yield Lab(stack)


@pytest.fixture
def spec() -> Callable[..., NodeSpec]:
    """Builds specs of nodes: ``spec("w0", 2, up=Direction(...))``."""
    return node_spec


@pytest.fixture
def iproute() -> Callable[..., Any]:
    """Opens pyroute2's own socket, here or in the network namespace of a process."""
    from pyroute2 import IPRoute

    def opened(pid: int | None = None) -> Any:
        with nullcontext() if pid is None else inside(pid):
            return IPRoute()

    return opened


@pytest.fixture
def new_peer() -> Iterator[Callable[[], Peer]]:
    """Starts a process in a network namespace of its own, until the end of the test."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(Peer())
