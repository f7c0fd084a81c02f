"""A device's handling of records: counted, ordered, taken by steps; by hand."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from testbed.datasets.streams import (
    Arrivals,
    Buffer,
    RateMeter,
    Reception,
    RecordFormat,
    Sample,
    Steady,
)

FORMAT = RecordFormat((1, 1, 1), "f")


def record(sequence: int, made: float = 0.0) -> bytes:
    pixels = np.full((1, 1, 1), sequence, np.float32)
    return FORMAT.encode([Sample(sequence, 100 + sequence, made, 0.0, pixels)])


def reception(buffer: Buffer | None = None) -> Reception:
    return Reception(FORMAT, buffer or Buffer(), RateMeter(10.0))


def come(subject: Reception, sequences: Iterable[int], now: float = 0.0) -> None:
    for sequence in sequences:
        subject.receive(record(sequence), now)


def conserved(buffer: Buffer) -> bool:
    kept = buffer.used + buffer.waiting + buffer.truncated + buffer.duplicates
    return buffer.produced == kept


def test_steps_take_the_oldest_first() -> None:
    subject = reception()
    come(subject, range(1, 6))
    assert [one.sample for one in subject.take(3)] == [101, 102, 103]
    assert subject.lacking(3) == 1  # 4 and 5 have arrived
    buffer = subject.buffer
    assert (buffer.produced, buffer.used, buffer.waiting) == (5, 3, 2)
    assert conserved(buffer)


def test_duplicates_are_dropped_and_counted() -> None:
    subject = reception()
    come(subject, [1, 2, 3, 2, 3, 4])  # 2 and 3 were sent again
    assert [one.sequence for one in subject.take(4)] == [1, 2, 3, 4]
    assert (subject.buffer.produced, subject.buffer.duplicates, subject.missing) == (6, 2, 0)
    assert conserved(subject.buffer)


def test_invalid_records_are_counted_and_the_stream_continues() -> None:
    subject = reception()
    come(subject, [1])
    subject.receive(record(2)[:-1], 0.0)
    come(subject, [3])
    assert (subject.refused, subject.missing) == (1, 1)  # number 2 never arrived
    assert [one.sequence for one in subject.take(2)] == [1, 3]
    assert conserved(subject.buffer)


def test_a_record_of_several_samples_is_used_entirely_or_not_at_all() -> None:
    """The second of three records of two samples is damaged: 3 and 4 never arrive."""
    lots = RecordFormat((1, 1, 1), "f", samples=2)
    subject = Reception(lots, Buffer(), RateMeter(10.0))
    for first in (1, 3, 5):
        pixels = np.zeros((1, 1, 1), np.float32)
        data = lots.encode([Sample(one, 0, 0.1 * one, 0.0, pixels) for one in (first, first + 1)])
        subject.receive(data[:-1] if first == 3 else data, 0.7)
    assert (subject.refused, subject.missing, subject.newest) == (1, 2, 6)
    assert [one.sequence for one in subject.take(3)] == [1, 2, 5]
    assert (subject.buffer.produced, subject.buffer.waiting) == (4, 1)
    assert subject.latency == pytest.approx(0.1)  # of 6, the newest


def test_a_restarted_device_continues_its_stream() -> None:
    subject = reception()
    subject.newest = 50  # of the previous process
    come(subject, [51, 52, 54])
    assert (subject.missing, subject.newest) == (1, 54)  # 53


def test_samples_before_the_first_that_arrived_are_missing() -> None:
    """Of 1 to 50, the transport may have removed the first 30 by now."""
    subject = reception()
    subject.removable = lambda now: 10 * int(now)
    come(subject, [51], now=3.0)
    assert (subject.missing, subject.removed) == (50, 30)
    come(subject, [62], now=4.0)  # 52 to 61 are newer than the 40 that it may have removed
    assert (subject.missing, subject.removed) == (60, 30)
    come(subject, [73], now=9.0)
    assert (subject.missing, subject.removed) == (70, 40)


def test_a_bounded_buffer_keeps_the_newest_except_for_a_waiting_step() -> None:
    subject = reception(Buffer(room=2))
    come(subject, range(1, 6))
    assert subject.lacking(4) == 2  # 4 and 5 are kept
    subject.wait()
    come(subject, [6, 7])  # they go to the step, and need no space
    assert [one.sequence for one in subject.take(4)] == [4, 5, 6, 7]
    assert (subject.buffer.truncated, subject.buffer.waiting) == (3, 0)
    assert conserved(subject.buffer)


def test_samples_of_a_failed_wait_are_kept_for_the_next_step() -> None:
    subject = reception(Buffer(room=2))
    subject.wait()
    come(subject, [1, 2, 3])
    subject.give_up()
    assert (subject.buffer.waiting, subject.buffer.truncated) == (2, 1)
    assert conserved(subject.buffer)


def test_latency_is_from_creation_to_arrival() -> None:
    subject = reception()
    subject.receive(record(1, made=0.5), now=0.75)
    assert (subject.latency, subject.heard) == (0.25, 0.75)


@pytest.mark.parametrize("rate", [0.5, 8.0, 13.0, 64.0, 1024.0])
def test_the_rate_is_the_announced_one_at_first(rate: float) -> None:
    """64 per second: samples 65 to 128 are in one second, 64 intervals; exactly 64 per second."""
    arrivals, meter = Arrivals(rate, Steady(name="steady")), RateMeter(10.0)
    assert meter.rate == 10.0  # as announced
    meter.begin()
    for sequence in range(1, 2 * int(rate) + 4):
        meter.add(arrivals.moment(sequence))
    assert meter.rate == pytest.approx(rate, rel=1e-9)
    assert meter.rate == pytest.approx(arrivals.measured(arrivals.moment(sequence)), rel=1e-9)
