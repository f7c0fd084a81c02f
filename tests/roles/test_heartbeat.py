"""Pauses of a process: what counts as a gap, and where gaps are recorded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from testbed.roles.heartbeat import BEAT_SECONDS, Heartbeat, interval

Bench = Any
Run = Callable[..., Bench]


@dataclass
class Hand:
    """A clock advanced by hand."""

    seconds: float = 100.0

    def __call__(self) -> float:
        return self.seconds


def test_the_longest_gap_is_the_delay_of_a_beat() -> None:
    hand = Hand()
    heartbeat = Heartbeat(hand)
    for wait in (BEAT_SECONDS, 45.0 + BEAT_SECONDS, 3.0 + BEAT_SECONDS, 0.1):
        hand.seconds += wait
        heartbeat.beat()
    assert heartbeat.take() == pytest.approx(45.0)
    assert heartbeat.take() == 0.0


def test_a_gap_is_visible_before_the_next_beat() -> None:
    hand = Hand()
    heartbeat = Heartbeat(hand)
    hand.seconds += 4.0 + BEAT_SECONDS
    assert heartbeat.take() == pytest.approx(4.0)
    heartbeat.beat()  # of the thread, a moment later
    assert heartbeat.take() == 0.0


def test_the_thread_beats_until_it_is_stopped() -> None:
    asked = Hand()
    heartbeat = Heartbeat(asked)
    with heartbeat.beating():
        pass
    asked.seconds += 2.0 + BEAT_SECONDS  # the heartbeat has stopped
    assert heartbeat.take() == pytest.approx(2.0)


def test_each_of_many_workers_beats_more_slowly() -> None:
    assert [interval(count) for count in (1, 50, 200)] == [1.0, 1.0, 4.0]
    hand = Hand()
    heartbeat = Heartbeat(hand, every=interval(200))
    hand.seconds += 4.0 + 1.5
    assert heartbeat.take() == pytest.approx(1.5)


def gaps(bench: Bench) -> list[tuple[str, float]]:
    return [(one["node"], one["seconds"]) for one in bench.events() if one["event"] == "gap"]


def test_a_push_reports_its_workers_gap_and_short_gaps_are_not_events(run: Run) -> None:
    async def play(bench: Bench) -> None:
        bench.join(0, 1)
        await bench.pull(0)
        await bench.push(0, 1, 0, gap_seconds=0.75)
        assert bench.record.largest_gap_seconds == 0.75
        await bench.push(0, 2, 1, gap_seconds=44.5)
        await bench.push(0, 3, 2, gap_seconds=0.0)

    bench = run(play)
    assert gaps(bench) == [("w0", 44.5)]
    assert bench.record.done(evaluated=True).largest_gap_seconds == 44.5


def test_the_server_reports_workers_that_are_silent_at_the_end(run: Run) -> None:
    async def play(bench: Bench) -> None:
        bench.join(0, 1)
        await bench.pull(0)
        bench.training.silence(0, silent=True)
        bench.training.silence(1, silent=True)
        bench.seconds = 12.0
        bench.training.tick()  # both count as silent now: no worker is left that could push
        bench.seconds = 15.0
        bench.training.check_progress()

    assert gaps(run(play)) == [("w0", 12.0), ("w1", 12.0)]


def test_a_node_reports_a_pause_that_ends_before_the_training(run: Run) -> None:
    async def play(bench: Bench) -> None:
        bench.join(0, 1)
        await bench.pull(0)
        bench.training.silence(0, silent=True)
        bench.seconds = 5.0
        bench.training.silence(0, silent=False)
        bench.training.leave(0)
        bench.training.leave(1)

    bench = run(play)
    assert bench.training.ended.is_set()
    assert gaps(bench) == []
