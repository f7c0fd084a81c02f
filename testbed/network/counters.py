"""The traffic of the PS's link, read from outside its container.

Three independent numbers: the interface's counter includes headers,
acknowledgements and retransmissions; TCP's counts payload alone; the algorithm's own bytes are
counted elsewhere, at the codec.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from testbed.errors import HostError
from testbed.host.namespaces import entered, open_namespace
from testbed.network.frames import FrameCounts, Frames, frame_counts
from testbed.network.ledgers import Ledger, Pair, Pairs, sums
from testbed.network.sock_diag import SocketDiagnosis
from testbed.network.tcp_options import TcpOptions
from testbed.values.topology import INTERFACE, TrainingRole

NODES_AT_ONCE = 100
"""Nodes of a workload whose pairs are read at once; of more, the others follow in turn."""

LISTEN, LOOPBACK = "0A", "0100007F"
"""As /proc/net/tcp has a state, and the end of an address of this node alone."""


class InterfaceCounters(NamedTuple):
    """An interface's totals since it was created, in Ethernet bytes and packets."""

    rx_bytes: int = 0
    rx_packets: int = 0
    tx_bytes: int = 0
    tx_packets: int = 0


@dataclass(frozen=True)
class Traffic:
    """Totals since the links were created. They never decrease.

    Attributes:
        wire_rx_bytes: Ethernet bytes received at the PS's ``eth0``.
        wire_rx_packets: the number of these packets (a GSO packet is one).
        wire_tx_bytes: Ethernet bytes sent there.
        wire_tx_packets: the number of these packets.
        tcp_received_bytes: payload received by the PS's sockets, including closed ones.
        tcp_segments_in: TCP segments they received, acknowledgements included.
        tcp_acked_bytes: payload they sent and the workers acknowledged.
        tcp_segments_out: TCP segments they sent.
        tcp_options_in_bytes: TCP options, except time stamps, in the packets received there, such
            as SACK in the acknowledgements of a model of which a part was lost.
        retransmitted_out_bytes: payload they retransmitted (models).
        sockets: the number of sockets connected now.
        retransmitted_in_bytes: by worker, payload that its sockets retransmitted (pushes); in a
            workload by node.
        peers: by node of a workload, the totals at its ``eth0``.
        pairs: by node of a workload and address of its peer, what has changed since the last
            reading; the address is empty for all peers after the first ``MOST_PEERS``.
        frames: by address of a workload's node and of the peer to which it has sent them, what
            has changed since the last reading; nothing if the kernel cannot count them.
    """

    wire_rx_bytes: int = 0
    wire_rx_packets: int = 0
    wire_tx_bytes: int = 0
    wire_tx_packets: int = 0
    tcp_received_bytes: int = 0
    tcp_segments_in: int = 0
    tcp_acked_bytes: int = 0
    tcp_segments_out: int = 0
    tcp_options_in_bytes: int = 0
    retransmitted_out_bytes: int = 0
    sockets: int = 0
    retransmitted_in_bytes: Mapping[str, int] = field(default_factory=dict)
    peers: Mapping[str, InterfaceCounters] = field(default_factory=dict)
    pairs: Mapping[str, Mapping[str, Pair]] = field(default_factory=dict)
    frames: Mapping[str, Mapping[str, Frames]] = field(default_factory=dict)


class Carried(NamedTuple):
    """What a node's link has carried since it was created, in Ethernet bytes."""

    up_bytes: int
    down_bytes: int


class TrafficMeter:
    """Reads the PS's link and every worker's retransmissions. One per host.

    Reading enters nodes' network namespaces one after the other, so run it in a thread that
    does nothing else meanwhile. It costs 3 ms for the PS of 200 workers and 0.04 ms for a worker,
    or 0.6 ms if the worker has retransmitted anything since.
    """

    def __init__(self) -> None:
        self._server = _ServerMeter()
        self._workers: dict[str, _WorkerMeter | _PeerMeter] = {}
        self._turn = 0
        self._frames: FrameCounts | None = None

    def watch(
        self, name: str, *, pid: int, part: TrainingRole = "client", attached: bool = True
    ) -> None:
        """Count a node with a link from now on; counts under an earlier pid are kept.

        ``pid`` is any process in its network namespace, as this process sees it. ``attached`` is
        False if the namespace and its interface are those of the node's earlier process.
        """
        meter: _Meter = self._server
        if part == "peer" and not any(isinstance(m, _PeerMeter) for m in self._workers.values()):
            self._frames = frame_counts()
        if part != "server":
            made = _PeerMeter() if part == "peer" else _WorkerMeter()
            meter = self._workers.setdefault(name, made)
        meter.watch(name, pid)
        if isinstance(meter, _InterfaceMeter) and attached:
            meter.begin_interface()

    def release(self, name: str) -> None:
        """Read a node that has ended or is ending once more if possible; its totals are kept."""
        for meter in (self._server, *self._workers.values()):
            if meter.name == name:
                meter.read()
                meter.release()

    @property
    def round_trips(self) -> Mapping[str, float]:
        """Smoothed round trips (s) at the PS's sockets by the peer's address, when last read."""
        return self._server.round_trips

    def read(self) -> Traffic:
        """Read every watched node now; an ended node keeps its totals.

        Raises:
            HostError: the kernel does not report TCP sockets.
        """
        peers = {n: one for n, one in self._workers.items() if isinstance(one, _PeerMeter)}
        turns = -(-len(peers) // NODES_AT_ONCE)
        for number, peer in enumerate(peers.values()):
            peer.is_due = (number + self._turn) % turns == 0
        self._turn += 1
        for meter in (self._server, *self._workers.values()):
            meter.read()
        wire, tcp = self._server.wire(), self._server.ledger.total()
        return Traffic(
            wire_rx_bytes=wire.rx_bytes,
            wire_rx_packets=wire.rx_packets,
            wire_tx_bytes=wire.tx_bytes,
            wire_tx_packets=wire.tx_packets,
            tcp_received_bytes=tcp.received_bytes,
            tcp_segments_in=tcp.segments_in,
            tcp_acked_bytes=tcp.acked_bytes,
            tcp_segments_out=tcp.segments_out,
            tcp_options_in_bytes=self._server.options_bytes,
            retransmitted_out_bytes=tcp.retransmitted_bytes,
            sockets=self._server.connected,
            retransmitted_in_bytes={
                name: meter.ledger.total().retransmitted_bytes
                for name, meter in self._workers.items()
            },
            peers={name: meter.wire() for name, meter in peers.items()},
            pairs={name: pairs for name, meter in peers.items() if (pairs := meter.pairs.take())},
            frames=self._take_frames(),
        )

    def _take_frames(self) -> Mapping[str, Mapping[str, Frames]]:
        if self._frames is not None:
            try:
                return self._frames.take()
            except (HostError, OSError):
                self._frames = None  # the other counters remain
        return {}


def read_interface(process: int | str) -> InterfaceCounters:
    """Return the counters of ``eth0`` in a process's network namespace (or ``thread-self``).

    Raises:
        OSError, KeyError: no such process, or no such interface.
    """
    return _read_interfaces(process)[INTERFACE]


def read_ports() -> dict[str, Carried]:
    """Return the traffic of the switch's ports, in the current network namespace, by name.

    Data received at a port has passed the node's shaper, data sent has passed the port's own.
    """
    interfaces = _read_interfaces("thread-self").items()
    return {name: Carried(one.rx_bytes, one.tx_bytes) for name, one in interfaces}


def _read_interfaces(process: int | str) -> dict[str, InterfaceCounters]:
    found = {}
    for line in Path(f"/proc/{process}/net/dev").read_text().splitlines():
        name, colon, numbers = line.partition(":")
        if colon:
            columns = [int(number) for number in numbers.split()]
            counters = InterfaceCounters(columns[0], columns[1], columns[8], columns[9])
            found[name.strip()] = counters
    return found


def read_retransmitted_segments(pid: int) -> int:
    """Return the TCP segments retransmitted by all sockets in a process's network namespace."""
    lines = Path(f"/proc/{pid}/net/snmp").read_text().splitlines()
    names, numbers = (line.split() for line in lines if line.startswith("Tcp:"))
    return int(numbers[names.index("RetransSegs")])


class _Meter(ABC):
    """One node: its last readings, which are kept after it has ended."""

    def __init__(self) -> None:
        self.name = ""
        self.ledger = Ledger()
        self._opened: ExitStack | None = None
        self._released = False

    def watch(self, name: str, pid: int) -> None:
        self.release()
        self.read()
        self.name, self._released = name, False
        with ExitStack() as opened:
            self._open(pid, opened)
            self._opened = opened.pop_all()

    def release(self) -> None:
        """Make the next reading the last: the ends of its sockets are reported a bit later."""
        self._released = True

    def read(self) -> None:
        if self._opened is None:
            return
        self._measure()
        if self._released:
            self._opened.close()
            self._opened = None

    @abstractmethod
    def _open(self, pid: int, opened: ExitStack) -> None:
        """Open what the readings need, to be closed with ``opened``."""

    @abstractmethod
    def _measure(self) -> None:
        """Read the kernel's counters of the node, whose process may have ended."""


class _InterfaceMeter(_Meter):
    """A node's interface, which can be read for a moment after the node has ended."""

    def __init__(self) -> None:
        super().__init__()
        self._interfaces: list[InterfaceCounters] = []

    def begin_interface(self) -> None:
        """Add up the counters of a new interface, which begin at zero, with the earlier ones."""
        self._interfaces.append(InterfaceCounters())

    def wire(self) -> InterfaceCounters:
        return InterfaceCounters(*sums(self._interfaces))

    def _open(self, pid: int, opened: ExitStack) -> None:
        self._namespace = open_namespace(pid)
        opened.callback(os.close, self._namespace)

    def _measure(self) -> None:
        with entered(self._namespace), suppress(KeyError):  # its port was taken over
            self._interfaces[-1] = read_interface("thread-self")


class _ServerMeter(_InterfaceMeter):
    """The PS: its interface and its sockets."""

    def __init__(self) -> None:
        super().__init__()
        self.connected = 0
        self.options_bytes = 0  # of options that are counted
        self._options: TcpOptions | None = None
        self.round_trips: Mapping[str, float] = {}

    def _open(self, pid: int, opened: ExitStack) -> None:
        self._sockets = opened.enter_context(closing(SocketDiagnosis(pid)))
        super()._open(pid, opened)
        self._options = None
        with entered(self._namespace), suppress(OSError):  # a kernel without packet sockets
            self._options = opened.enter_context(closing(TcpOptions(INTERFACE)))

    def _measure(self) -> None:
        sockets = self._sockets.connected()
        self.ledger.count(sockets, self._sockets.ended())
        super()._measure()
        if self._options is not None:
            self.options_bytes += self._options.take()
        self.connected = len(sockets)
        self.round_trips = {one.peer: one.round_trip_seconds for one in sockets}


class _WorkerMeter(_Meter):
    """A worker: its sockets, read only after retransmissions.

    Finding a namespace's sockets takes the kernel half a millisecond for any number: it walks
    through the table of all sockets of the host.
    """

    def _open(self, pid: int, opened: ExitStack) -> None:
        self._sockets = opened.enter_context(closing(SocketDiagnosis(pid)))
        self._pid, self._segments = pid, 0

    def _measure(self) -> None:
        segments = -1  # if its process has ended
        with suppress(FileNotFoundError, ProcessLookupError):
            segments = read_retransmitted_segments(self._pid)
        changed = segments < 0 or segments != self._segments
        connected = self._sockets.connected() if changed else ()
        self.ledger.count(connected, self._sockets.ended())
        self._segments = segments


class _PeerMeter(_InterfaceMeter):
    """A node of a workload: its interface and, after traffic, its sockets, by the other end."""

    def __init__(self) -> None:
        super().__init__()
        self.is_due = True  # whether its sockets are read next time
        self.pairs = Pairs()
        self._read_at = InterfaceCounters()

    def _open(self, pid: int, opened: ExitStack) -> None:
        self._sockets = opened.enter_context(closing(SocketDiagnosis(pid)))
        super()._open(pid, opened)

    def _measure(self) -> None:
        super()._measure()
        if not (self.is_due or self._released):
            return
        quiet, self._read_at = self.wire() == self._read_at, self.wire()
        connected = [] if quiet else self._sockets.connected()
        ended = self._sockets.ended()  # reported a bit after a socket's last packet
        self.ledger.count(connected, ended)
        self.pairs.count(connected, ended)


def listening_ports(pid: int) -> set[int]:
    """Return the TCP ports at which a process's network namespace accepts calls of other nodes."""
    found = set()
    for table in ("tcp", "tcp6"):
        with suppress(FileNotFoundError):
            for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
                words = line.split()
                address, _, port = words[1].partition(":")
                if words[3] == LISTEN and not address.endswith(LOOPBACK):
                    found.add(int(port, 16))
    return found
