"""Trainings in which no worker can push any more, and trainings that only look stalled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from math import inf
from typing import Any

import numpy as np
import pytest

from testbed.algorithms import Bsp
from testbed.algorithms.base import (
    Applied,
    Halves,
    Measured,
    Update,
    WorkerHalf,
)
from testbed.algorithms.parts.rounds import RoundServer
from testbed.payloads.layout import Layout
from testbed.roles.frozen import SILENT_SECONDS
from testbed.rpc.codec import decode_snapshot
from testbed.rpc.messages import Delivery

Bench = Any
Half = Any
Run = Callable[..., Bench]
LAYOUT = Layout(("weight",), ((2, 2),))


async def first_push(bench: Bench) -> asyncio.Task[Delivery]:
    """Two workers pull, and the first pushes: it waits for the reply."""
    await bench.pull(0)
    await bench.pull(1)
    held = asyncio.create_task(bench.push(0, 1, 0))
    await bench.settle()
    return held


def test_a_long_freeze_stalls_waiting_workers(run: Run, barrier: Half) -> None:
    async def play(bench: Bench) -> None:
        bench.join(0, 1)
        held = await first_push(bench)
        bench.training.silence(1, silent=True)
        bench.seconds = SILENT_SECONDS - 0.1
        bench.training.tick()
        assert not held.done()
        bench.seconds = SILENT_SECONDS
        bench.training.tick()
        assert (await held).reply is None
        assert bench.training.unnotified == []
        assert bench.training.drained.is_set()

    finished = [one for one in run(play, half=barrier).events() if one["event"] == "finished"]
    assert [(one["reason"], one["stalled"]) for one in finished] == [
        ("stalled: 1 worker waits for w1", True)
    ]


def test_a_short_pause_does_not_stall(run: Run, barrier: Half) -> None:
    async def play(bench: Bench) -> None:
        bench.join(0, 1)
        held = await first_push(bench)
        bench.training.silence(1, silent=True)
        bench.seconds = SILENT_SECONDS - 0.1
        bench.training.silence(1, silent=False)
        bench.seconds = 2 * SILENT_SECONDS
        bench.training.tick()
        assert not bench.training.ended.is_set()
        await bench.push(1, 1, 0)
        assert (await held).reply is not None

    run(play, half=barrier)


def test_the_call_of_a_crashed_worker_does_not_count_as_waiting(run: Run, barrier: Half) -> None:
    async def play(bench: Bench) -> None:
        bench.training.server.crashes = lambda worker: worker == 0
        bench.join(0, 1)
        crashed = await first_push(bench)
        assert not crashed.done()
        assert bench.training.waiting == 0
        crashed.cancel()

    run(play, half=barrier)


@pytest.mark.parametrize("thaws", [True, False])
def test_the_call_of_a_frozen_worker_does_not_count_as_waiting(
    run: Run, barrier: Half, thaws: bool
) -> None:
    async def play(bench: Bench) -> None:
        bench.join(0, 1)
        frozen = await first_push(bench)
        bench.training.silence(0, silent=True, thaws=thaws)
        assert bench.training.waiting == 0
        bench.training.silence(0, silent=False)
        assert bench.training.waiting == 1
        frozen.cancel()

    run(play, half=barrier)


def test_a_freeze_that_a_fault_ends_does_not_stall(run: Run, barrier: Half) -> None:
    """The ten seconds of one that nothing ends begin when it does."""

    async def play(bench: Bench) -> None:
        bench.join(0, 1)
        bench.training.silence(1, silent=True)
        bench.training.silence(1, silent=True, thaws=True)
        bench.seconds = 2 * SILENT_SECONDS
        bench.training.tick()
        assert not bench.training.server.is_silent(1)
        bench.training.silence(1, silent=True)
        bench.training.tick()
        assert not bench.training.server.is_silent(1)
        bench.seconds = 3 * SILENT_SECONDS
        bench.training.tick()
        assert bench.training.server.is_silent(1)

    run(play, half=barrier)


@pytest.mark.parametrize("thaws", [True, False])
def test_the_end_of_a_freeze_is_not_a_message_of_the_worker(run: Run, thaws: bool) -> None:
    """A worker that is never heard again is removed on time, if it was not silent."""

    async def play(bench: Bench) -> None:
        bench.training.server.dead_after = 30.0
        bench.join(0, 1)
        await bench.pull(0)
        due = bench.training.server.next_tick(bench.training.clock.now)
        assert due < inf
        bench.training.silence(0, silent=True, thaws=thaws)
        bench.training.silence(0, silent=False)
        assert bench.training.server.next_tick(bench.training.clock.now) == due

    run(play)


def test_a_process_that_joins_again_is_not_frozen(run: Run, barrier: Half) -> None:
    """The one before it was, and the controller has not yet said that it is no more."""

    async def play(bench: Bench) -> None:
        bench.join(0, 1)
        bench.training.silence(0, silent=True, thaws=True)
        bench.training.leave(0)
        bench.training.silence(0, silent=True, thaws=True)
        bench.join(0)
        held = await first_push(bench)
        assert bench.training.waiting == 1
        held.cancel()

    run(play, half=barrier)


def test_a_training_without_workers_is_stalled(run: Run) -> None:
    async def play(bench: Bench) -> None:
        bench.join(0, 1)
        bench.training.leave(0)
        bench.training.remove(1, "killed")
        assert bench.training.drained.is_set()

    finished = run(play).events()[-1]
    assert finished["stalled"]
    assert finished["reason"].startswith("stalled: no worker is left that could push")


class Careful(Bsp):
    """BSP that holds its rounds until the loss of the resulting model is known."""

    def halves(self) -> Halves:
        return WorkerHalf, Auditor


class Auditor(RoundServer[Careful]):
    wanted: int | None = None

    def push(self, worker: int, update: Update, now: float) -> Sequence[Applied]:
        applied = super().push(worker, update, now)
        if applied:
            self.wanted = self.version
        return applied

    def ready(self, worker: int) -> bool:
        return self.wanted is None and super().ready(worker)

    def wants_loss(self) -> bool:
        return self.wanted is not None

    def measured(self, measured: Measured) -> None:
        if measured.version == self.wanted:
            self.wanted = None


def test_a_barrier_is_held_until_its_model_is_evaluated(run: Run) -> None:
    """The requested snapshot is sent before any other, though none is due."""
    half = Careful(name="bsp").server(
        LAYOUT, 2, parameters=np.zeros(4, np.float32), rng=np.random.default_rng(0)
    )

    async def play(bench: Bench) -> None:
        first = bench.snapshots.ask(0, 0.0)
        bench.join(0, 1)
        assert decode_snapshot(await first).version == 0
        await bench.pull(0)
        await bench.pull(1)
        held = [asyncio.create_task(bench.push(worker, 1, 0)) for worker in (0, 1)]
        await bench.settle()
        assert not any(one.done() for one in held)
        asked = bench.snapshots.ask(1000, 1e9)
        bench.training.check_progress()
        snapshot = decode_snapshot(await asked)
        assert (snapshot.version, snapshot.final) == (2, False)
        bench.seconds = 1.0
        bench.training.measured(Measured(snapshot.time, 2, 0.5), metrics={})
        assert [(await one).reply is not None for one in held] == [True, True]

    assert run(play, half=half).rows()["worker"].tolist() == [0, 1]
