"""Orders between replies, and ticks at their times."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar, Literal

import numpy as np
import pytest

from testbed.algorithms.base import (
    AlgorithmConfig,
    Applied,
    Halves,
    Orders,
    ServerHalf,
    Ticked,
    Update,
    WorkerHalf,
)
from testbed.algorithms.frame.effects import StandingOrders
from testbed.errors import RejectedError
from testbed.payloads.layout import Layout
from testbed.rpc.codec import decode_orders

Bench = Any
Run = Callable[..., Bench]
LAYOUT = Layout(("weight",), ((2, 2),))


class Ticking(AlgorithmConfig):
    """Orders a batch size every two emulated seconds."""

    name: Literal["ticking"] = "ticking"

    SENDS_ORDERS: ClassVar[bool] = True

    def halves(self) -> Halves:
        return WorkerHalf, TickingServer


class TickingServer(ServerHalf[Ticking]):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.ticks: list[float] = []

    def push(self, worker: int, update: Update, now: float) -> list[Applied]:
        self.version += 1
        return [Applied(worker, self.version - 1)]

    def next_tick(self, now: float) -> float:
        return 2.0 * (len(self.ticks) + 1)

    def tick(self, now: float) -> Ticked:
        self.ticks.append(now)
        return Ticked(orders={1: Orders(batch_size=len(self.ticks))})


def ticking() -> ServerHalf[Any]:
    return Ticking().server(
        LAYOUT, 2, parameters=np.zeros(4, np.float32), rng=np.random.default_rng(0)
    )


def test_orders_are_sent_at_once_on_a_stream_and_with_the_next_reply(run: Run) -> None:
    async def play(bench: Bench) -> None:
        bench.join(0, 1)
        await bench.pull(1)
        orders = bench.training.follow_orders(1, 0)
        first = asyncio.create_task(anext(orders))
        await bench.settle()
        assert not first.done()
        bench.seconds = 0.2
        bench.training.tick()
        assert decode_orders(await first) == StandingOrders(1, Orders(batch_size=1), 2.0)
        bench.seconds = 0.4
        bench.training.tick()
        assert (await bench.push(1, 1, 0)).standing == StandingOrders(2, Orders(batch_size=2), 4.0)
        assert decode_orders(await anext(orders)).number == 2
        newer = bench.training.follow_orders(1, 1)  # the connection was lost meanwhile
        assert decode_orders(await anext(newer)).number == 2
        with pytest.raises(StopAsyncIteration):
            await anext(orders)
        bench.training.leave(1)
        with pytest.raises(StopAsyncIteration):
            await anext(newer)
        with pytest.raises(RejectedError, match="worker 1 is unknown"):
            await anext(bench.training.follow_orders(1, 0))

    run(play, half=ticking())


def test_a_tick_runs_before_a_later_push(run: Run) -> None:
    """Even if the event loop has not handled the tick yet."""

    async def play(bench: Bench) -> None:
        bench.join(0, 1)
        await bench.pull(1)
        bench.seconds = 0.3
        assert (await bench.push(1, 1, 0)).standing == StandingOrders(1, Orders(batch_size=1), 3.0)

    run(play, half=ticking())


def test_ticks_are_on_time(run: Run) -> None:
    """On a running clock: ten emulated seconds per real one, a tick every 0.2 real seconds."""
    half = ticking()

    async def play(bench: Bench) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        bench.clock.steady = loop.time
        bench.join(0, 1)
        time = asyncio.create_task(bench.training.keep_time())
        while len(half.ticks) < 4:
            await asyncio.sleep(0.005)
        time.cancel()
        assert loop.time() - began >= 0.8

    run(play, half=half)
    late = [(at - 2.0 * (number + 1)) / 10 for number, at in enumerate(half.ticks)]
    assert all(one >= 0.0 for one in late)
    assert min(late) <= 0.02  # real seconds; one of four, as the host may be busy
