"""Max-min fair sharing, each case worked by hand. Rates in bytes per second, sizes in bytes."""

from __future__ import annotations

from math import inf

import pytest

from testbed.simulation.event_queue import EventQueue
from testbed.simulation.links import Bucket, FairLink


def ends_of(capacity: float, transfers: list[tuple[str, float, float, float]]) -> dict[str, float]:
    """When each transfer (name, start, size, cap) ends."""
    events = EventQueue()
    link, ended = FairLink(events, capacity), dict[str, float]()

    def end(name: str, now: float) -> None:
        ended[name] = now

    for name, start, size, cap in transfers:
        events.at(
            start,
            lambda _, name=name, size=size, cap=cap: link.start(  # type: ignore[misc]
                size, cap=cap, done=lambda now: end(name, now)
            ),
        )
    while events.advance():
        continue
    return ended


def test_one_transfer_has_its_own_cap_or_the_link() -> None:
    assert ends_of(100.0, [("a", 0.0, 500.0, 50.0)]) == {"a": 10.0}
    assert ends_of(100.0, [("a", 0.0, 500.0, inf)]) == {"a": 5.0}


def test_two_transfers_that_overlap_share_the_link_while_they_do() -> None:
    # a alone for 1 s: 100 of its 200 bytes. Then 50 each: a's other 100 take 2 s, until 3.
    # b has 100 of its 200 by then; the rest alone takes 1 s more, until 4.
    ended = ends_of(100.0, [("a", 0.0, 200.0, inf), ("b", 1.0, 200.0, inf)])
    assert ended == pytest.approx({"a": 3.0, "b": 4.0})


def test_three_classes_on_one_link() -> None:
    # Caps 10, 30 and 100 on a link of 90: of fair shares of 30, 20 pass from the slow to the fast:
    # 10, 30, 50. Each sends what it can in 2 s, so all end together.
    ended = ends_of(90.0, [("slow", 0, 20, 10), ("medium", 0, 60, 30), ("fast", 0, 100, 100)])
    assert ended == pytest.approx({"slow": 2.0, "medium": 2.0, "fast": 2.0})


def test_unused_rate_goes_to_the_other_transfers() -> None:
    # Link 100, caps 80: 50 each until a's 100 bytes are through at 2 s; b has 100 of 260 then, and
    # continues at its cap of 80 for the other 160: 2 s more.
    ended = ends_of(100.0, [("a", 0.0, 100.0, 80.0), ("b", 0.0, 260.0, 80.0)])
    assert ended == pytest.approx({"a": 2.0, "b": 4.0})


def test_an_unshaped_link_takes_no_time() -> None:
    assert ends_of(inf, [("a", 1.0, 1e9, inf)]) == {"a": 1.0}


def test_caps_hold_on_an_unshaped_link() -> None:
    ended = ends_of(inf, [("a", 0.0, 100.0, 10.0), ("b", 0.0, 100.0, 20.0)])
    assert ended == pytest.approx({"a": 10.0, "b": 5.0})


def test_bytes_are_conserved_over_many_transfers() -> None:
    # 1,000 transfers of 1,000 bytes that keep a link of 10,000 bytes/s full end after 100 s.
    transfers = [(str(i), i * 0.01, 1000.0, inf) for i in range(1000)]
    ended = ends_of(10_000.0, transfers)
    assert len(ended) == 1000
    assert max(ended.values()) == pytest.approx(100.0)


def ends_through(
    bucket: Bucket, capacity: float, messages: list[tuple[float, float]]
) -> list[float]:
    """When each message (start, size) has passed a bucket and a PS link of this capacity."""
    events, ended = EventQueue(), list[float]()
    link = FairLink(events, capacity)
    for start, size in messages:
        events.at(start, lambda _, size=size: bucket.send(size, link=link, done=ended.append))  # type: ignore[misc]
    while events.advance():
        continue
    return ended


def test_bytes_with_tokens_pass_at_once_and_the_rest_at_the_rate() -> None:
    # 30 of 130 bytes at once, the other 100 at 10 bytes/s.
    assert ends_through(Bucket(10.0, 30.0), inf, [(1.0, 130.0)]) == [11.0]
    assert ends_through(Bucket(10.0, 30.0), inf, [(1.0, 30.0)]) == [1.0]


def test_a_pause_refills_the_bucket_up_to_its_size() -> None:
    # The first empties the bucket at 11 s. Two seconds later it holds 20: 80 are left, 8 s.
    # A long time later it holds 30, not more: 70 are left, 7 s.
    messages = [(1.0, 130.0), (13.0, 100.0), (1000.0, 100.0)]
    assert ends_through(Bucket(10.0, 30.0), inf, messages) == pytest.approx([11.0, 21.0, 1007.0])


def test_a_small_message_leaves_tokens_for_the_next() -> None:
    # 20 of 30 tokens; after 0.5 s there are 15, so that 15 of 30 bytes wait 1.5 s.
    ended = ends_through(Bucket(10.0, 30.0), inf, [(0.0, 20.0), (0.5, 30.0)])
    assert ended == pytest.approx([0.0, 2.0])


def test_a_burst_still_passes_the_shared_link() -> None:
    # 30 bytes at the PS's 15 bytes/s: 2 s; 100 at the worker's own 10 bytes/s: 10 s.
    assert ends_through(Bucket(10.0, 30.0), 15.0, [(0.0, 130.0)]) == pytest.approx([12.0])


def test_an_unshaped_link_has_no_bucket() -> None:
    assert ends_through(Bucket(inf, 0.0), inf, [(1.0, 1e9)]) == [1.0]
    assert ends_through(Bucket(inf, 0.0), 100.0, [(1.0, 500.0)]) == pytest.approx([6.0])
