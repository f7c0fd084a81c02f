"""When the evaluator gets which model, and which reports are accepted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from testbed.algorithms.frame.stop import StopRule
from testbed.errors import RejectedError
from testbed.rpc.codec import decode_snapshot

Bench = Any
Run = Callable[..., Bench]


def test_snapshots_are_taken_when_due(run: Run) -> None:
    async def play(bench: Bench) -> None:
        ask, look = bench.snapshots.ask, bench.training.check_progress
        first = ask(0, 0.0)
        look()
        assert not first.done()  # nothing has started
        bench.join(0, 1)
        assert decode_snapshot(await first).version == 0
        await bench.pull(0)
        by_version, by_time, unwanted = ask(2, 0.0), ask(0, 35.0), ask(1, 0.0)
        bench.snapshots.withdraw(unwanted)
        await bench.push(0, 1, 0)
        assert not by_version.done()
        await bench.push(0, 2, 1)
        snapshot = decode_snapshot(await by_version)
        assert (snapshot.version, snapshot.final) == (2, False)
        assert snapshot.model.values.tolist() == [-2, -2, -2, -2]
        bench.seconds = 3.5
        bench.training.tick()
        assert decode_snapshot(await by_time).time == 35.0
        last = ask(1000, 1e9)
        bench.seconds = 4.0
        await bench.push(0, 3, 2)
        bench.seconds = 5.0
        again = ask(1000, 1e9)
        look()
        for answer in (last, again):
            snapshot = decode_snapshot(await answer)
            assert (snapshot.version, snapshot.time, snapshot.final) == (3, 40.0, True)
        assert not unwanted.done()

    run(play, stop=StopRule(updates=3))


def test_a_late_poll_still_gets_the_initial_model_first(run: Run) -> None:
    async def play(bench: Bench) -> None:
        bench.join(0, 1)
        await bench.pull(0)
        await bench.push(0, 1, 0)
        bench.seconds = 2.0
        initial = decode_snapshot(await bench.training.snapshot(0, 0.0))
        assert (initial.version, initial.model.values.tolist()) == (0, [0, 0, 0, 0])
        snapshot = decode_snapshot(await bench.training.snapshot(0, 0.0))
        assert snapshot.version == 1
        time = snapshot.time
        assert bench.snapshots.reported(1, time, final=False) == (16, {})
        assert bench.snapshots.reported(1, time, final=False) is None
        with pytest.raises(RejectedError, match="version 2 at 20 s, which was not taken"):
            bench.snapshots.reported(2, time, final=False)
        with pytest.raises(RejectedError, match="version 1 at 30 s, which was not taken"):
            bench.snapshots.reported(1, 30.0, final=False)
        with pytest.raises(RejectedError, match="final snapshot of version 1"):
            bench.snapshots.reported(1, time, final=True)

    run(play)


def test_a_snapshot_by_time_is_taken_without_updates(run: Run) -> None:
    """The same model is taken again at the next time, with a separate report."""

    async def play(bench: Bench) -> None:
        bench.join(0, 1)
        await bench.training.snapshot(0, 0.0)
        keeping = asyncio.create_task(bench.training.keep_time())
        for time in (0.1, 0.2):  # a hundredth of a real second after the other
            answer = asyncio.create_task(bench.training.snapshot(0, time))
            await bench.settle()
            assert not answer.done()
            bench.seconds = time / 10
            snapshot = decode_snapshot(await answer)
            assert (snapshot.version, snapshot.time) == (0, pytest.approx(time))
            assert bench.snapshots.reported(0, snapshot.time, final=False) == (0, {})
        keeping.cancel()

    run(play)


def test_a_snapshot_by_time_is_taken_before_a_later_push(run: Run) -> None:
    """Even if the event loop is late: its model does not include that push."""

    async def play(bench: Bench) -> None:
        bench.join(0, 1)
        await bench.training.snapshot(0, 0.0)
        await bench.pull(0)
        answer = asyncio.create_task(bench.training.snapshot(0, 10.0))
        await bench.settle()
        bench.seconds = 1.5
        await bench.push(0, 1, 0)
        assert decode_snapshot(await answer).version == 0

    run(play)
