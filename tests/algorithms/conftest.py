"""Workers and a server without the frame, with numbers worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from vectors import floats

from testbed.algorithms.base import AlgorithmConfig, Applied, Reply, ServerHalf, Update, WorkerHalf
from testbed.payloads.layout import Layout

RNG = np.random.default_rng(0)
LAYOUT = Layout(("weight",), ((2,),))


class Group:
    """Some workers and a server on two parameters that start at 8 and 16.

    All workers have pulled, unless a test does that later. The caller sets the time.
    """

    def __init__(self, config: AlgorithmConfig, workers: int, *, pulled: bool = True) -> None:
        self.server: ServerHalf[Any] = config.server(
            LAYOUT, workers, parameters=floats(8, 16), rng=RNG
        )
        self.workers: list[WorkerHalf[Any]] = [
            config.worker(LAYOUT, workers, rng=RNG) for _ in range(workers)
        ]
        for index in range(workers):
            self.server.join(index)
        for index in range(workers) if pulled else ():
            self.pull(index)

    def pull(self, index: int, *, now: float = 0.0) -> Reply:
        assert self.server.ready(index)
        reply = self.server.pull(index, now)
        worker = self.workers[index]
        worker.obey(worker.orders.replaced_by(reply.orders), now)
        worker.receive(reply, now)
        return reply

    def step(self, index: int, *gradient: float, now: float = 0.0) -> Update | None:
        return self.workers[index].step(floats(*gradient), 10, now)

    def push(self, index: int, *gradient: float, now: float = 0.0) -> Sequence[Applied]:
        update = self.step(index, *gradient, now=now)
        assert update is not None
        return self.server.push(index, update, now)

    def tell(self, index: int, message: Update | None) -> None:
        """A worker sends a message that is not part of the model."""
        assert message is not None
        assert message.steps == 0
        assert self.server.push(index, message, 0.0) == ()


@pytest.fixture
def group_of() -> type[Group]:
    """Some workers and a server of an algorithm."""
    return Group
