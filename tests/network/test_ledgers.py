"""What a node has exchanged with each peer, from the counters of its sockets."""

from __future__ import annotations

from testbed.network.ledgers import MOST_PEERS, Pair, Pairs
from testbed.network.sock_diag import TcpCounters, TcpSocket


def connection(cookie: int, peer: str, sent: int, trip: float = 0.0) -> TcpSocket:
    counters = TcpCounters(
        acked_bytes=sent, received_bytes=10 * sent, retransmitted_bytes=sent // 100
    )
    return TcpSocket(cookie, counters, peer, trip)


def test_connections_add_up_by_peer() -> None:
    pairs = Pairs()
    pairs.count([connection(1, "a", 100, 0.5), connection(2, "a", 200, 1.5)], [])
    pairs.count([connection(1, "a", 300, 0.5)], [connection(2, "a", 250), connection(3, "b", 7)])
    assert pairs.take() == {"a": Pair(550, 5500, 5, 0.5), "b": Pair(7, 70, 0, None)}


def test_the_round_trip_of_closed_connections_stays_known() -> None:
    pairs = Pairs()
    pairs.count([], [connection(1, "a", 100, 0.25), connection(2, "a", 100, 0.75)])
    assert pairs.take() == {"a": Pair(200, 2000, 2, 0.5)}
    pairs.count([], [connection(3, "a", 100)])
    assert pairs.take() == {"a": Pair(300, 3000, 3, 0.5)}


def test_only_changes_are_taken() -> None:
    pairs = Pairs()
    one, other = connection(1, "a", 100), connection(2, "b", 100)
    pairs.count([one, other], [])
    assert pairs.take().keys() == {"a", "b"}
    pairs.count([one, connection(2, "b", 101)], [])
    assert pairs.take().keys() == {"b"}
    assert pairs.take() == {}


def test_further_peers_are_counted_together() -> None:
    pairs = Pairs()
    many = [connection(n, f"10.0.0.{n}", 1) for n in range(MOST_PEERS + 3)]
    pairs.count(many, [])
    found = pairs.take()
    assert len(found) == MOST_PEERS + 1
    assert found[""].sent_bytes == 3
    pairs.count([*many[:-1], connection(MOST_PEERS + 2, f"10.0.0.{MOST_PEERS + 2}", 5)], [])
    assert pairs.take()[""].sent_bytes == 7
