"""The request queue at the parameter server, live: waiting, removed workers, and the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from testbed.algorithms.frame.stop import StopRule
from testbed.rpc.service import SupersededError

Bench = Any
Run = Callable[..., Bench]


def test_requests_that_take_time_are_queued(run: Run) -> None:
    async def play(bench: Bench) -> None:
        loop = asyncio.get_running_loop()
        bench.join(0, 1)
        began = loop.time()
        await asyncio.gather(bench.pull(1), bench.pull(0))
        assert loop.time() - began >= 0.04  # two of 0.2 emulated seconds at ten per real second
        pushes = [asyncio.create_task(bench.push(worker, 1, 0)) for worker in (1, 0)]
        await bench.settle()
        bench.seconds = 0.0625  # by this clock, which only the test advances
        assert [(await push).blocked for push in pushes] == [0.625, 0.625]  # all held back
        assert loop.time() - began >= 0.08
        late = asyncio.create_task(bench.push(1, 2, 1))
        await bench.settle()
        bench.seconds = 0.2  # its turn ended at 1.0 emulated seconds, and it is 2.0
        assert (await late).blocked == pytest.approx(1.375)

    bench = run(play, service_seconds=0.2)
    assert bench.rows()["worker"].tolist() == [1, 0, 1]
    done = bench.record.done(evaluated=True)
    assert (done.served, done.served_late) == (5, 1)


def test_the_end_of_training_empties_the_queue(run: Run) -> None:
    async def play(bench: Bench) -> None:
        bench.join(0, 1)
        waiting = [asyncio.create_task(bench.pull(worker)) for worker in (0, 1)]
        await bench.settle()
        bench.seconds = 1.0
        bench.training.tick()
        for pull in waiting:
            assert (await pull).reply is None
        bench.training.tick()
        assert bench.training.drained.is_set()

    run(play, service_seconds=36_000.0, stop=StopRule(time=10.0))


def test_a_removed_worker_in_the_queue_changes_nothing(run: Run) -> None:
    async def play(bench: Bench) -> None:
        bench.join(0, 1)
        await asyncio.gather(bench.pull(0), bench.pull(1))
        push = asyncio.create_task(bench.push(0, 1, 0))
        await bench.settle()
        bench.training.remove(0, "w0 was killed")
        with pytest.raises(SupersededError):
            await push

    assert len(run(play, service_seconds=0.2).rows()) == 0
