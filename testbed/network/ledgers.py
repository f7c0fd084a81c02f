"""Adds up the counters of TCP sockets: of a node, and by the other end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from testbed.network.sock_diag import TcpCounters, TcpSocket

MOST_PEERS = 100
"""Peers of a node that are counted one by one."""


class Ledger:
    """Adds up sockets' counters and keeps those of closed sockets.

    A socket whose end was not reported keeps the counters last seen.
    """

    def __init__(self) -> None:
        self._seen: dict[int, TcpCounters] = {}
        self._ended = TcpCounters()

    def count(self, connected: Iterable[TcpSocket], ended: Iterable[TcpSocket] = ()) -> TcpCounters:
        """Enter the sockets' current or final counters; return the total over all sockets seen."""
        self._seen.update((found.cookie, found.counters) for found in connected)
        for one in ended:
            self._seen.pop(one.cookie, None)
            self._ended = TcpCounters(*sums((self._ended, one.counters)))
        return self.total()

    def total(self) -> TcpCounters:
        """Return the total as of the last count."""
        return TcpCounters(*sums((self._ended, *self._seen.values())))


class Pair(NamedTuple):
    """What a node's TCP sockets have exchanged with one peer so far, in bytes of payload.

    Attributes:
        sent_bytes: sent and acknowledged by the peer.
        received_bytes: received in order.
        retransmitted_bytes: sent again.
        round_trip_seconds: smoothed, mean over the sockets connected now; without any, over those
            that were closed last. None if unknown.
    """

    sent_bytes: int
    received_bytes: int
    retransmitted_bytes: int
    round_trip_seconds: float | None


class Pairs:
    """The sockets of a node by the other end's address; empty for all after ``MOST_PEERS``."""

    def __init__(self) -> None:
        self._ledgers: dict[str, Ledger] = {}
        self._known: dict[str, Pair] = {}
        self._changed: dict[str, Pair] = {}

    def count(self, connected: Sequence[TcpSocket], ended: Sequence[TcpSocket]) -> None:
        """Enter current or final counters, as in a ``Ledger``."""
        both: dict[str, tuple[list[TcpSocket], list[TcpSocket]]] = {}
        for place, sockets in enumerate((connected, ended)):
            for one in sockets:
                both.setdefault(self._key(one.peer), ([], []))[place].append(one)
        for key, (open_now, closed) in both.items():
            total = self._ledgers[key].count(open_now, closed)
            before, trip = self._known.get(key), _round_trip(open_now) or _round_trip(closed)
            if trip is None and before is not None:
                trip = before.round_trip_seconds
            pair = Pair(total.acked_bytes, total.received_bytes, total.retransmitted_bytes, trip)
            if before != pair:
                self._known[key] = self._changed[key] = pair

    def take(self) -> Mapping[str, Pair]:
        """Return what has changed since the last call."""
        changed, self._changed = self._changed, {}
        return changed

    def _key(self, peer: str) -> str:
        key = peer if peer in self._ledgers or len(self._ledgers) < MOST_PEERS else ""
        self._ledgers.setdefault(key, Ledger())
        return key


def _round_trip(sockets: Iterable[TcpSocket]) -> float | None:
    """Return the mean round trip of sockets that know one; None without any."""
    trips = [one.round_trip_seconds for one in sockets if one.round_trip_seconds]
    return sum(trips) / len(trips) if trips else None


def sums(rows: Iterable[Iterable[int]]) -> Iterator[int]:
    """Return the sum of each column."""
    return map(sum, zip(*rows, strict=True))
