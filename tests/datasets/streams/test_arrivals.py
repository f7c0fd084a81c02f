"""Arrival times of samples: integrals and their inverses, worked by hand."""

from __future__ import annotations

from math import inf

import pytest

from testbed.datasets.streams import Arrivals, OnOff, RateStep, Sine, Steady
from testbed.datasets.streams.over_time import RateChange
from testbed.values.units import Duration

STEADY = Steady(name="steady")


def seconds(value: float) -> Duration:
    return Duration(value)


def test_samples_of_a_steady_stream_arrive_at_equal_intervals() -> None:
    """22 per second for 1.2 s are 26.4 samples: 26 have arrived, and 0.4 is carried over."""
    stream = Arrivals(22, STEADY)
    assert stream.count(1.2) == 26
    assert stream.moment(26) == pytest.approx(26 / 22)
    assert stream.count(5 * 1.2) == 132  # 5 * 26.4: no fraction is lost


@pytest.mark.parametrize("rate", [8, 22, 38, 64, 300, 1024, 0.3])
def test_a_sample_has_arrived_at_its_time(rate: float) -> None:
    stream = Arrivals(rate, STEADY)
    for sample in [*range(1, 200), 10**6]:
        assert stream.count(stream.moment(sample)) == sample


def test_samples_arrive_in_lots_and_are_made_one_by_one() -> None:
    """Lots of 4, 8 per second: 4 by 0.5 s, 8 by 1 s; the fifth is made at 0.625, arrives at 1 s."""
    stream = Arrivals(8, STEADY, lot=4)
    assert [stream.count(t) for t in (0.49, 0.5, 0.99, 1.0)] == [0, 4, 4, 8]
    assert (stream.made(5), stream.moment(5)) == (pytest.approx(0.625), pytest.approx(1.0))
    assert stream.measured(1.9) == pytest.approx(8)  # as each was made
    assert stream.silent_from(1.1, until=9, patience=0.3) == pytest.approx(1.4)
    assert stream.silent_from(1.1, until=9, patience=0.5) == inf


def test_a_step_doubles_the_rate() -> None:
    """10 per second for 2 s, then 20: 20 by 2 s, 40 by 3 s; the 30th arrives at 2.5 s."""
    stream = Arrivals(10, RateStep(name="step", at=seconds(2), factor=2.0))
    assert [stream.count(t) for t in (1, 2, 3)] == [10, 20, 40]
    assert stream.moment(30) == pytest.approx(2.5)


def test_a_step_to_zero_ends_a_stream() -> None:
    stream = Arrivals(10, RateStep(name="step", at=seconds(2), factor=0.0))
    assert stream.count(100) == 20
    assert stream.moment(21) == inf
    assert stream.change.falls_silent


def test_an_intermittent_stream() -> None:
    """On for 2 s, off for 3: at 10 per second, 20 by 2 s and 5 s, the 21st at 5.1 s, 40 by 7 s."""
    stream = Arrivals(10, OnOff(name="on-off", on=seconds(2), off=seconds(3)))
    assert [stream.count(t) for t in (2, 5, 7, 10)] == [20, 20, 40, 40]
    assert stream.moment(20) == pytest.approx(2)
    assert stream.moment(21) == pytest.approx(5.1)


def test_a_sine_keeps_its_mean() -> None:
    """1 + 0.5 sin(2 pi t / 4): by half a period 2 + 0.5 * 4 / pi = 2.6366, by a whole one 4."""
    change = Sine(name="sine", period=seconds(4), amplitude=0.5)
    assert change.amount(2) == pytest.approx(2 + 2 / 3.141592653589793)
    assert change.amount(4) == pytest.approx(4)
    assert change.reached(change.amount(2)) == pytest.approx(2)


@pytest.mark.parametrize(
    "change",
    [
        STEADY,
        RateStep(name="step", at=seconds(3), factor=0.25),
        Sine(name="sine", period=seconds(5), amplitude=1.0),
        OnOff(name="on-off", on=seconds(0.5), off=seconds(1.5)),
    ],
    ids=lambda change: change.name,
)
def test_times_are_the_inverse_of_counts(change: RateChange) -> None:
    stream = Arrivals(13, change)
    moments = [stream.moment(sample) for sample in range(1, 300)]
    assert moments == sorted(moments)
    assert [stream.count(moment) for moment in moments] == list(range(1, 300))


def test_a_rate_is_measured_exactly_where_it_is_constant() -> None:
    for rate in (8, 64, 300, 1024):
        stream = Arrivals(rate, STEADY)
        assert stream.measured(0.0) == rate  # announced: none has arrived
        for time in (0.4, 1.0, 3.7, 1000.3):
            assert stream.measured(time) == pytest.approx(rate, rel=1e-9)


def test_a_rate_is_measured_over_the_second_before_the_last_sample() -> None:
    """10 a second for 2 s, then 40. At 2.5 s the last second has 5 samples of the slow part and 20
    of the fast; from 3 s on it has 40."""
    stream = Arrivals(10, RateStep(name="step", at=seconds(2), factor=4.0))
    assert stream.measured(2) == pytest.approx(10)
    assert stream.measured(2.5) == pytest.approx(25)
    assert stream.measured(3.5) == pytest.approx(40)


def test_a_wait_times_out_after_a_silence() -> None:
    """On for 1 s, off for 20: at 8 per second the 9th arrives at 21.125 s. A wait from 0.5 s on
    sees the 8th at 1 s, and times out 10 s later; with more patience it gets the 9th."""
    stream = Arrivals(8, OnOff(name="on-off", on=seconds(1), off=seconds(20)))
    assert stream.silent_from(0.5, until=9, patience=10.0) == pytest.approx(11)
    assert stream.silent_from(0.5, until=9, patience=21.0) == inf
    assert stream.silent_from(0.5, until=8, patience=0.2) == inf  # one every 0.125 s
    assert Arrivals(0, STEADY).silent_from(3.0, until=1, patience=10.0) == 13.0
    assert Arrivals(0, STEADY).silent_from(3.0, until=1, patience=inf) == inf


def test_a_slow_stream_is_not_silent() -> None:
    """One per 5 s: 64 take 320 s, and none arrives more than 10 s after another."""
    assert Arrivals(0.2, STEADY).silent_from(0.0, until=64, patience=10.0) == inf
