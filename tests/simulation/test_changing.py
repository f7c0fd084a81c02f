"""Links that change during a run, worked by hand in bytes, and bytes per second."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import pytest

from testbed.scenario.direction import Link, TracedDirection
from testbed.simulation.event_queue import EventQueue
from testbed.simulation.links import Bucket, FairLink
from testbed.simulation.model import delayed, paths
from testbed.values.units import Duration

Happens = tuple[float, Callable[[Bucket, FairLink], None]]


def cut(bucket: Bucket, link: FairLink) -> None:
    bucket.disconnect(link=link)


def reconnect(bucket: Bucket, link: FairLink) -> None:
    bucket.reconnect(link=link)


def end(bucket: Bucket, link: FairLink) -> None:
    bucket.reset(link=link)


def to(rate: float, burst: float = 30.0) -> Callable[[Bucket, FairLink], None]:
    return lambda bucket, link: bucket.change(rate, burst, link=link)


def arrivals(
    bucket: Bucket,
    messages: list[tuple[float, float]],
    *happens: Happens,
    delay: float = 0.0,
    capacity: float = inf,
    others: list[tuple[float, float]] | None = None,
) -> list[float]:
    """When each message (start, size) arrives, then each message of another worker.

    Infinite for one that does not.
    """
    events = EventQueue()
    link, arrived = FairLink(events, capacity), dict[int, float]()
    another = Bucket(inf, 0.0)
    sent = [(bucket, *one) for one in messages] + [(another, *one) for one in others or []]
    for number, (through, start, size) in enumerate(sent):

        def send(
            _: float, number: int = number, through: Bucket = through, size: float = size
        ) -> None:
            through.carry(size, delay, link=link, done=lambda now: arrived.update({number: now}))

        events.at(start, send)
    for time, happen in happens:
        events.at(time, lambda _, happen=happen: happen(bucket, link))  # type: ignore[misc]
    while events.advance():
        continue
    return [arrived.get(number, inf) for number in range(len(sent))]


def test_a_change_affects_active_transfers() -> None:
    # From 1 s on 30 of 130 bytes at once, then 10 a second: 50 are left at 6 s, and take 2 s at 25.
    assert arrivals(Bucket(10.0, 30.0), [(1.0, 130.0)], (6.0, to(25.0))) == [8.0]
    # and 10 s at 5.
    assert arrivals(Bucket(10.0, 30.0), [(1.0, 130.0)], (6.0, to(5.0))) == [16.0]


def test_a_change_and_its_end() -> None:
    # 50 left at 6 s; 3 s at 5 bytes/s leave 35, which take 3.5 s at 10.
    changes = (6.0, to(5.0)), (9.0, to(10.0))
    assert arrivals(Bucket(10.0, 30.0), [(1.0, 130.0)], *changes) == [12.5]


def test_an_unshaped_link_becomes_shaped_and_unshaped_again() -> None:
    # The PS's 100 bytes/s until 2 s: 300 of 500 are left. At 10 for 5 s: 250; then 100 again.
    changes = (2.0, to(10.0)), (7.0, to(inf, 0.0))
    bucket = Bucket(inf, 0.0)
    assert arrivals(bucket, [(0.0, 500.0)], *changes, capacity=100.0) == pytest.approx([9.5])


def test_a_change_keeps_the_tokens_in_the_bucket() -> None:
    # Empty at 11 s. Two seconds at 10 make 20; three at 20 would make 60 more: 30 fit.
    # So of 130 bytes at 16 s 30 pass at once, and 100 take 5 s.
    messages = [(1.0, 130.0), (16.0, 130.0)]
    assert arrivals(Bucket(10.0, 30.0), messages, (13.0, to(20.0))) == [11.0, 21.0]


def test_a_partition_stops_active_transfers() -> None:
    # 50 left at 6 s, and at 9 s.
    times = (6.0, cut), (9.0, reconnect)
    assert arrivals(Bucket(10.0, 30.0), [(1.0, 130.0)], *times) == [14.0]


def test_messages_sent_during_a_partition_wait_for_its_end() -> None:
    # From 5 s on: 30 bytes at once, 100 in 10 s.
    times = (0.0, cut), (5.0, reconnect)
    assert arrivals(Bucket(10.0, 30.0), [(1.0, 130.0)], *times) == [15.0]


def test_a_rate_changed_during_a_partition_applies_after_it() -> None:
    times = (6.0, cut), (7.0, to(25.0)), (9.0, reconnect)
    assert arrivals(Bucket(10.0, 30.0), [(1.0, 130.0)], *times) == [11.0]


def test_other_workers_use_the_ps_link_during_a_partition() -> None:
    # 50 each until 1 s; the other's 150 left take 1.5 s alone. From 4 s on 150 alone: 1.5 s.
    found = arrivals(
        Bucket(inf, 0.0),
        *([(0.0, 200.0)], (1.0, cut), (4.0, reconnect)),
        capacity=100.0,
        others=[(0.0, 200.0)],
    )
    assert found == pytest.approx([5.5, 2.5])


@pytest.mark.parametrize(
    ("begins", "ends", "arrives"),
    [
        (3.0, 5.0, 14.0),  # two seconds without a byte
        (11.0, 20.0, 22.0),  # sent at 10 s, lost at 12, sent again at 20
        (10.5, 11.5, 12.0),  # over before it would have arrived
    ],
)
def test_messages_due_during_a_partition_are_sent_again(
    begins: float, ends: float, arrives: float
) -> None:
    """100 bytes at 10 per second, and two seconds of latency."""
    times = (begins, cut), (ends, reconnect)
    assert arrivals(Bucket(10.0, 0.0), [(0.0, 100.0)], *times, delay=2.0) == [arrives]


def test_the_messages_of_a_worker_that_ended_leave_the_ps_link() -> None:
    # 50 each until 1 s; the other's 150 left take 1.5 s alone.
    found = arrivals(
        Bucket(20.0, 100.0), [(0.0, 200.0)], (1.0, end), capacity=100.0, others=[(0.0, 200.0)]
    )
    assert found == pytest.approx([inf, 2.5])


def test_the_next_process_of_a_worker_has_its_whole_link() -> None:
    # 50 are left when it ends at 6 s. Of the next 130, 30 pass at once, the others take 10 s.
    assert arrivals(Bucket(10.0, 30.0), [(1.0, 130.0), (6.5, 130.0)], (6.0, end)) == [inf, 16.5]
    # Also if the link was changed meanwhile.
    happens = (2.0, to(5.0, 10.0)), (6.0, end)
    assert arrivals(Bucket(10.0, 30.0), [(1.0, 130.0), (6.5, 130.0)], *happens) == [inf, 16.5]


@pytest.mark.parametrize(
    ("begins", "sent"),
    [
        (6.0, 1.0),  # stopped on the way
        (0.5, 1.0),  # not sent yet
        (13.0, 1.0),  # sent at 11 s, and lost at 13
    ],
)
def test_nothing_of_a_worker_that_ended_during_a_partition_is_sent_after_it(
    begins: float, sent: float
) -> None:
    """Ends at 14 s; its next process at 20 s: 30 bytes at once, 100 in 10 s, and the latency.

    The other worker's 400 bytes are sent while nothing else is.
    """
    found = arrivals(
        Bucket(10.0, 30.0),
        *([(sent, 130.0), (20.0, 130.0)], (begins, cut), (14.0, end)),
        delay=2.0,
        capacity=100.0,
        others=[(14.0, 400.0)],
    )
    assert found == pytest.approx([inf, 32.3, 20.0])


def test_a_changed_delay_applies_to_the_workers_hop() -> None:
    """20 ms up, 30 ms down, 1 and 2 ms of the PS's: a round trip of 53 ms, then of 113."""
    own = Link(up=TracedDirection(delay=Duration(0.02)), down=TracedDirection(delay=Duration(0.03)))
    server = Link(
        up=TracedDirection(delay=Duration(0.001)), down=TracedDirection(delay=Duration(0.002))
    )
    up, down = delayed(*paths(own, server), 0.08, None)
    assert [hop.delay_seconds for hop in (*up.hops, *down.hops)] == [0.08, 0.002, 0.001, 0.03]
    assert up.round_trip_seconds == down.round_trip_seconds == pytest.approx(0.113)
