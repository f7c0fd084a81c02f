"""Max-min fair sharing, each case worked by hand. Rates in bytes per second, sizes in bytes."""

from __future__ import annotations

from math import inf

import pytest

from testbed.simulate.agenda import Agenda
from testbed.simulate.links import FairLink


def ends_of(capacity: float, transfers: list[tuple[str, float, float, float]]) -> dict[str, float]:
    """When each transfer (name, start, size, cap) ends."""
    agenda = Agenda()
    link, ended = FairLink(agenda, capacity), dict[str, float]()

    def end(name: str, now: float) -> None:
        ended[name] = now

    for name, start, size, cap in transfers:
        agenda.at(
            start,
            lambda _, name=name, size=size, cap=cap: link.start(  # type: ignore[misc]
                size, cap=cap, done=lambda now: end(name, now)
            ),
        )
    while agenda.advance():
        continue
    return ended


def test_one_transfer_has_its_own_cap_or_the_link() -> None:
    assert ends_of(100.0, [("a", 0.0, 500.0, 50.0)]) == {"a": 10.0}
    assert ends_of(100.0, [("a", 0.0, 500.0, inf)]) == {"a": 5.0}


def test_two_transfers_that_overlap_share_the_link_while_they_do() -> None:
    # a alone for 1 s: 100 of its 200 bytes. Then 50 each: a's other 100 take 2 s, until 3.
    # b has had 100 of its 200 by then, and the rest alone takes 1 s more, until 4.
    ended = ends_of(100.0, [("a", 0.0, 200.0, inf), ("b", 1.0, 200.0, inf)])
    assert ended == pytest.approx({"a": 3.0, "b": 4.0})


def test_three_classes_on_one_link() -> None:
    # Caps 10, 30 and 100 on a link of 90: fair shares of 30 leave 20 of the slow one's to the fast:
    # 10, 30, 50. Each sends what it can in 2 s, so all end together.
    ended = ends_of(90.0, [("slow", 0, 20, 10), ("medium", 0, 60, 30), ("fast", 0, 100, 100)])
    assert ended == pytest.approx({"slow": 2.0, "medium": 2.0, "fast": 2.0})


def test_what_one_leaves_goes_to_the_others() -> None:
    # Link 100, caps 80: 50 each until a's 100 bytes are through at 2 s; b has 100 of 260 then, and
    # goes on at its cap of 80 for the other 160: 2 s more.
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
