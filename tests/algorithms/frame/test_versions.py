"""The version of a server half rises by one with every update that it applies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pytest

from testbed.algorithms.base import (
    AlgorithmConfig,
    Applied,
    Halves,
    ServerHalf,
    Update,
    WorkerHalf,
)
from testbed.algorithms.frame.server import Server
from testbed.algorithms.frame.stop import StopRule
from testbed.errors import AlgorithmError
from testbed.payloads import Dense, Vector
from testbed.payloads.layout import Layout
from testbed.values.state import PlainState

LAYOUT = Layout(("weight",), ((2,),))


class Counting(AlgorithmConfig):
    """Applies updates in pairs, at the second push; the first waits in the half."""

    name: Literal["counting"] = "counting"

    def halves(self) -> Halves:
        return Idle, Pairs


class Idle(WorkerHalf[Counting]):
    def step(self, gradient: Vector, samples: int, now: float) -> Update | None:
        return None


class Pairs(ServerHalf[Counting]):
    waits: int | None = None
    rise = 1
    ahead = 0

    def push(self, worker: int, update: Update, now: float) -> Sequence[Applied]:
        if self.waits is None:
            self.waits = worker
            return ()
        self.version += 2 * self.rise
        first = self.version - 2 + self.ahead
        applied = [Applied(self.waits, first), Applied(worker, first + 1)]
        self.waits = None
        return applied


def paired(state: PlainState | None = None) -> tuple[Server, Pairs]:
    parameters = np.zeros(2, np.float32)
    half = Counting().server(LAYOUT, 2, parameters=parameters, rng=np.random.default_rng(0))
    server = Server(half, StopRule())
    if state is not None:
        server.restore(state)
    for worker in (0, 1):
        server.join(worker)
    server.begin(0.0)
    assert isinstance(half, Pairs)
    return server, half


def push(server: Server, worker: int, sequence: int) -> int:
    server.pull(worker, 1.0)
    update = Update(Dense(np.ones(2, np.float32)), server.version, samples=10)
    return len(server.push(worker, sequence, update=update, now=1.0).applied)


def test_updates_may_be_applied_several_at_once_and_by_a_resumed_server() -> None:
    server, _ = paired()
    assert [push(server, worker, 1) for worker in (0, 1)] == [0, 2]
    resumed, half = paired(server.state())
    assert [push(resumed, worker, 2) for worker in (0, 1)] == [0, 2]
    half.rise = 0
    push(resumed, 0, 3)
    with pytest.raises(AlgorithmError, match="its version is 4 after 6 applied updates"):
        push(resumed, 1, 3)


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"rise": 0}, "its version is 0 after 2 applied updates"),
        ({"rise": 2}, "its version is 4 after 2 applied updates"),
        ({"ahead": 3}, "it applied an update at version 3, expected 0"),
    ],
)
def test_another_count_is_an_error(changes: dict[str, int], found: str) -> None:
    server, half = paired()
    vars(half).update(changes)
    push(server, 0, 1)
    with pytest.raises(AlgorithmError, match=found) as caught:
        push(server, 1, 1)
    assert caught.value.exit_code == 10


def test_a_version_that_rises_without_an_update_is_an_error() -> None:
    server, half = paired()
    half.version += 1
    with pytest.raises(AlgorithmError, match="its version is 1 after 0 applied updates"):
        server.leave(0, 1.0)
