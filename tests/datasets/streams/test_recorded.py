"""Streams whose rates follow a trace: integrals and their inverses, worked by hand."""

from __future__ import annotations

from math import inf

import pytest

from testbed.datasets.streams import Arrivals, Recorded
from testbed.values.traces import FACTOR, read_trace

TEXT = """time_seconds,factor
0,1
2,0
3,3
5,0.5
"""


def recorded(*, repeats: bool, offset: float = 0.0, text: str = TEXT) -> Recorded:
    return Recorded(read_trace(text, FACTOR, repeats=repeats), offset)


def test_a_trace_is_followed_and_repeated() -> None:
    """2 by 2 s, still 2 by 3 s, and 3 per second from then to 5 s: 8; the next lap has 8 more."""
    change = recorded(repeats=True)
    assert [change.amount(t) for t in (0, 1, 2, 3, 4, 5, 6, 8, 10)] == [0, 1, 2, 2, 5, 8, 9, 10, 16]
    moments = [change.reached(amount) for amount in (0, 1, 2, 5, 8, 9, 10, 16, 80)]
    assert moments == pytest.approx([0, 1, 2, 4, 5, 6, 7, 10, 50])


def test_the_last_factor_of_a_trace_can_be_held() -> None:
    """8 by 5 s, and half a sample per second from then on."""
    change = recorded(repeats=False)
    assert [change.amount(t) for t in (5, 7, 25)] == [8, 9, 18]
    assert [change.reached(amount) for amount in (8, 9, 18)] == pytest.approx([5, 7, 25])
    ends = recorded(repeats=False, text="time_seconds,factor\n0,2\n3,0\n")
    assert (ends.amount(9), ends.reached(6)) == (6, pytest.approx(3))
    assert ends.reached(6.5) == inf


def test_a_device_may_start_at_an_offset() -> None:
    """From 4 s on: 3 by a second later, where the next lap starts; 5 by 3 s, still so by 4 s."""
    change = recorded(repeats=True, offset=4.0)
    assert [change.amount(t) for t in (0, 1, 3, 4, 6)] == [0, 3, 5, 5, 11]
    assert [change.reached(amount) for amount in (3, 5, 8, 11)] == pytest.approx([1, 3, 5, 6])


@pytest.mark.parametrize("repeats", [True, False])
@pytest.mark.parametrize("offset", [0.0, 0.37, 2.5, 4.99])
@pytest.mark.parametrize("rate", [8.0, 13.0, 0.3, 1000.0])
def test_times_are_the_inverse_of_counts(rate: float, offset: float, repeats: bool) -> None:
    stream = Arrivals(rate, recorded(repeats=repeats, offset=offset))
    moments = [stream.moment(sample) for sample in range(1, 2000)]
    assert moments == sorted(moments)
    assert [stream.count(moment) for moment in moments] == list(range(1, 2000))


def test_a_trace_of_zeros_delivers_nothing() -> None:
    empty = recorded(repeats=True, text="time_seconds,factor\n0,0\n5,0\n")
    assert (empty.amount(100), empty.reached(1)) == (0, inf)
