"""When the evaluator gets which model, and what it may report on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from testbed.errors import RejectedError
from testbed.frame.stop import StopRule
from testbed.rpc.codec import decode_snapshot

Bench = Any
Run = Callable[..., Bench]


def test_snapshots_are_taken_when_they_are_due(run: Run) -> None:
    async def play(bench: Bench) -> None:
        ask, look = bench.snapshots.ask, bench.training.look
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


def test_who_asks_late_still_gets_the_initial_model_first(run: Run) -> None:
    async def play(bench: Bench) -> None:
        bench.join(0, 1)
        await bench.pull(0)
        await bench.push(0, 1, 0)
        versions = []
        for _ in range(2):
            answer = bench.snapshots.ask(0, 0.0)
            bench.training.look()
            versions.append(decode_snapshot(await answer))
        assert [snapshot.version for snapshot in versions] == [0, 1]
        assert versions[0].model.values.tolist() == [0, 0, 0, 0]
        taken, first = bench.snapshots.reported(1, final=False)
        assert (taken.payload_up_bytes, first) == (16, True)
        assert bench.snapshots.reported(1, final=False)[1] is False
        with pytest.raises(RejectedError, match="version 2, which was not taken"):
            bench.snapshots.reported(2, final=False)
        with pytest.raises(RejectedError, match="final snapshot of version 1"):
            bench.snapshots.reported(1, final=True)

    run(play)
