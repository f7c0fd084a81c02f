"""Buffers of waiting samples, worked by hand; every sample is accounted for."""

from __future__ import annotations

import numpy as np
import pytest

from testbed.datasets.streams import Bounded, Buffer, Persistence, Policy, Truncation

PERSISTENCE = Persistence(name="persistence")
TRUNCATION = Truncation(name="truncation")


def conserves(buffer: Buffer) -> bool:
    return buffer.produced == (buffer.used + buffer.waiting + buffer.truncated + buffer.duplicates)


def test_persistence_keeps_unused_samples() -> None:
    """100 have arrived, 64 are taken, 36 wait; 28 more complete the next 64."""
    buffer = PERSISTENCE.buffer()
    buffer.arrive(100, rate=100.0)
    assert buffer.take(64) == range(1, 65)
    assert buffer.waiting == 36
    buffer.arrive(128, rate=100.0)
    assert buffer.take(64) == range(65, 129)
    assert (buffer.produced, buffer.used, buffer.waiting) == (128, 128, 0)


def test_truncation_discards_unused_samples() -> None:
    """Of 100 that arrived since the last step, 64 are taken and 36 discarded."""
    buffer = TRUNCATION.buffer()
    buffer.arrive(100, rate=100.0)
    assert buffer.take(64) == range(1, 65)
    assert (buffer.waiting, buffer.truncated) == (0, 36)
    buffer.arrive(110, rate=100.0)
    assert buffer.waiting == 10
    assert buffer.take(64, last=164) == range(101, 165)  # 54 arrived during the wait
    assert (buffer.produced, buffer.used, buffer.truncated) == (164, 128, 36)


def test_truncation_keeps_the_newest_second_at_any_time() -> None:
    """At 40 per second: of 48 that arrived in 1.2 s it holds numbers 9 to 48, before any step.
    When the stream slows down to 30 per second, it holds 30 at the next sample."""
    buffer = TRUNCATION.buffer()
    buffer.arrive(48, rate=40.0)
    assert (buffer.first, buffer.waiting, buffer.truncated) == (9, 40, 8)
    buffer.arrive(49, rate=30.0)
    assert (buffer.first, buffer.waiting, buffer.truncated) == (20, 30, 19)
    assert buffer.take(20) == range(20, 40)
    assert (buffer.waiting, buffer.truncated, buffer.produced) == (0, 29, 49)


def test_a_bounded_buffer_keeps_the_newest() -> None:
    """Of 100 it keeps 50: numbers 51 to 100. Samples that a step waits for need no space."""
    buffer = Bounded(name="bounded", samples=50).buffer()
    buffer.arrive(100, rate=100.0)
    assert (buffer.waiting, buffer.truncated) == (50, 50)
    assert buffer.take(64, last=114) == range(51, 115)
    assert (buffer.produced, buffer.used, buffer.truncated) == (114, 64, 50)


def test_duplicates_are_dropped_and_counted() -> None:
    buffer = PERSISTENCE.buffer()
    buffer.arrive(3, rate=100.0)
    buffer.repeat()
    assert (buffer.produced, buffer.duplicates, buffer.waiting) == (4, 1, 3)
    buffer.arrive(2, rate=100.0)  # a duplicate
    assert buffer.produced == 4


def test_more_than_the_buffer_holds_cannot_be_taken() -> None:
    buffer = PERSISTENCE.buffer()
    buffer.arrive(3, rate=100.0)
    with pytest.raises(ValueError, match="4 samples requested, 3 are available"):
        buffer.take(4)
    assert (buffer.used, buffer.waiting) == (0, 3)


@pytest.mark.parametrize(
    "policy",
    [PERSISTENCE, TRUNCATION, Bounded(name="bounded", samples=7)],
    ids=lambda policy: policy.name,
)
def test_every_sample_is_accounted_for(policy: Policy) -> None:
    """Each sample is used once, discarded once or still waiting, in any order of events."""
    rng, buffer = np.random.default_rng(3), policy.buffer()
    used: list[int] = []
    for _ in range(2000):
        match rng.integers(3):
            case 0:
                buffer.arrive(buffer.last + int(rng.integers(20)), rate=100.0)
            case 1:
                buffer.repeat()
            case _:
                count = int(rng.integers(1, 12))
                used += buffer.take(count, last=buffer.first + count - 1)
        assert conserves(buffer)
    assert len(used) == len(set(used)) == buffer.used
    assert used == sorted(used)
