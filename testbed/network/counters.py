"""What the PS's link carried, read from outside its container.

Three numbers, none of which follows from the others: the interface's counter holds headers,
acknowledgements and everything sent twice; TCP's holds payload alone; the algorithm's own bytes are
counted elsewhere, at the codec.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from testbed.network.sock_diag import TcpCounters, TcpSocket, read_sockets

INTERFACE = "eth0"


@dataclass(frozen=True)
class Traffic:
    """Totals since the links were made. None of them ever goes down.

    Attributes:
        wire_rx_bytes: Ethernet bytes that came to the PS's ``eth0``.
        wire_rx_packets: in as many packets (a GSO packet is one).
        wire_tx_bytes: Ethernet bytes that left it.
        wire_tx_packets: in as many packets.
        tcp_received_bytes: payload that the PS's sockets received, the closed ones' included.
        tcp_segments_in: TCP segments they received, acknowledgements included.
        tcp_acked_bytes: payload they sent and the workers acknowledged.
        tcp_segments_out: TCP segments they sent.
        retransmitted_out_bytes: payload they sent again (models).
        sockets: how many are connected now.
        retransmitted_in_bytes: by worker, payload that its sockets sent again (pushes).
    """

    wire_rx_bytes: int = 0
    wire_rx_packets: int = 0
    wire_tx_bytes: int = 0
    wire_tx_packets: int = 0
    tcp_received_bytes: int = 0
    tcp_segments_in: int = 0
    tcp_acked_bytes: int = 0
    tcp_segments_out: int = 0
    retransmitted_out_bytes: int = 0
    sockets: int = 0
    retransmitted_in_bytes: Mapping[str, int] = field(default_factory=dict)


class InterfaceCounters(NamedTuple):
    """An interface's totals since it was made, in Ethernet bytes and packets."""

    rx_bytes: int = 0
    rx_packets: int = 0
    tx_bytes: int = 0
    tx_packets: int = 0


class Ledger:
    """Adds up sockets' counters and keeps those of sockets that have gone.

    A socket that closes takes its counters along; what it had when it was last seen stays counted.
    """

    def __init__(self) -> None:
        self._seen: dict[int, TcpCounters] = {}

    def count(self, sockets: Iterable[TcpSocket]) -> TcpCounters:
        """Enter what the sockets have now; the total over all that were ever seen."""
        self._seen.update((found.cookie, found.counters) for found in sockets)
        return self.total()

    def total(self) -> TcpCounters:
        """The total as of the last count."""
        return TcpCounters(*_sums(self._seen.values()))


class TrafficMeter:
    """Reads the PS's link and every worker's retransmissions. A host has one.

    Reading enters nodes' network namespaces one after the other, so it belongs into a thread that
    does nothing else meanwhile. It costs 3 ms for the PS of 200 workers and 0.04 ms for a worker,
    0.6 if that has sent something again since.
    """

    def __init__(self) -> None:
        self._server = _ServerMeter()
        self._workers: dict[str, _WorkerMeter] = {}

    def watch(self, name: str, *, pid: int, is_server: bool) -> None:
        """Count a node with a link from now on; what it counted under an earlier pid stays counted.

        ``pid`` is any process in its network namespace, as this process sees it.
        """
        meter = self._server if is_server else self._workers.setdefault(name, _WorkerMeter())
        meter.watch(name, pid)

    def release(self, name: str) -> None:
        """The node has ended or is about to: read it once more if possible; its totals stay."""
        for meter in (self._server, *self._workers.values()):
            if meter.name == name:
                meter.read()
                meter.release()

    @property
    def round_trips(self) -> Mapping[str, float]:
        """Smoothed round trips (s) at the PS's sockets by the peer's address, when last read."""
        return self._server.round_trips

    def read(self) -> Traffic:
        """Read every watched node now; one that has gone keeps what it had.

        Raises:
            HostError: the kernel does not report TCP sockets.
        """
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
            retransmitted_out_bytes=tcp.retransmitted_bytes,
            sockets=self._server.connected,
            retransmitted_in_bytes={
                name: meter.ledger.total().retransmitted_bytes
                for name, meter in self._workers.items()
            },
        )


def read_interface(pid: int, *, interface: str = INTERFACE) -> InterfaceCounters:
    """The counters of an interface in the network namespace of process ``pid``.

    Raises:
        OSError, KeyError: no such process, or no such interface.
    """
    for line in Path(f"/proc/{pid}/net/dev").read_text().splitlines():
        name, _, numbers = line.partition(":")
        if name.strip() == interface:
            columns = [int(number) for number in numbers.split()]
            return InterfaceCounters(columns[0], columns[1], columns[8], columns[9])
    raise KeyError(interface)


def read_retransmitted_segments(pid: int) -> int:
    """TCP segments sent again in the network namespace of process ``pid``, over all its sockets."""
    lines = Path(f"/proc/{pid}/net/snmp").read_text().splitlines()
    names, numbers = (line.split() for line in lines if line.startswith("Tcp:"))
    return int(numbers[names.index("RetransSegs")])


def _sums(rows: Iterable[Iterable[int]]) -> Iterator[int]:
    """Column by column."""
    return map(sum, zip(*rows, strict=True))


class _Meter(ABC):
    """One node: its last readings, kept when it has gone."""

    def __init__(self) -> None:
        self.name = ""
        self.ledger = Ledger()
        self._pid: int | None = None

    def watch(self, name: str, pid: int) -> None:
        self.release()
        self.name, self._pid = name, pid

    def release(self) -> None:
        self._pid = None

    def read(self) -> None:
        if self._pid is not None:
            # An error of this kind: the process has ended, and nobody has said so yet.
            with suppress(FileNotFoundError, ProcessLookupError):
                self._measure(self._pid)

    @abstractmethod
    def _measure(self, pid: int) -> None:
        """Read the kernel's counters of the node."""


class _ServerMeter(_Meter):
    """The PS: its interface and its sockets."""

    def __init__(self) -> None:
        super().__init__()
        self.connected = 0
        self.round_trips: Mapping[str, float] = {}
        self._interfaces: list[InterfaceCounters] = []

    def watch(self, name: str, pid: int) -> None:
        super().watch(name, pid)
        self._interfaces.append(InterfaceCounters())

    def release(self) -> None:
        super().release()
        self.connected = 0

    def wire(self) -> InterfaceCounters:
        return InterfaceCounters(*_sums(self._interfaces))

    def _measure(self, pid: int) -> None:
        self.connected = 0
        sockets = read_sockets(pid)
        self.ledger.count(sockets)
        self._interfaces[-1] = read_interface(pid)
        self.connected = len(sockets)
        self.round_trips = {one.peer: one.round_trip_seconds for one in sockets}


class _WorkerMeter(_Meter):
    """A worker: its sockets, looked at when something has been sent again.

    Finding a namespace's sockets takes the kernel half a millisecond however few there are: it goes
    through the table of all sockets of the host.
    """

    def __init__(self) -> None:
        super().__init__()
        self._segments = 0

    def watch(self, name: str, pid: int) -> None:
        super().watch(name, pid)
        self._segments = 0

    def _measure(self, pid: int) -> None:
        segments = read_retransmitted_segments(pid)
        if segments != self._segments:
            self.ledger.count(read_sockets(pid))
            self._segments = segments
