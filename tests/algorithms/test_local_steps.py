"""BSP, SSP and Fixed ADACOMM, worked by hand. All numbers are exact in float32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from testbed.algorithms import Bsp, FixedAdacomm, Ssp
from testbed.algorithms.base import AlgorithmConfig, Applied, Reply, ServerHalf, Update, WorkerHalf
from testbed.errors import RejectedError
from testbed.payloads import Dense, Sparse, Vector
from testbed.payloads.layout import Layout

RNG = np.random.default_rng(0)
LAYOUT = Layout(("weight",), ((2,),))


def floats(*values: float) -> Vector:
    return np.array(values, np.float32)


class Group:
    """Some workers and a server on two parameters that begin at 8 and 16; all have pulled."""

    def __init__(self, config: AlgorithmConfig, workers: int) -> None:
        self.server: ServerHalf[Any] = config.server(
            LAYOUT, workers, parameters=floats(8, 16), rng=RNG
        )
        self.workers: list[WorkerHalf[Any]] = [
            config.worker(LAYOUT, workers, rng=RNG) for _ in range(workers)
        ]
        for index in range(workers):
            self.server.join(index)
        for index in range(workers):
            self.pull(index)

    def pull(self, index: int) -> Reply:
        assert self.server.ready(index)
        reply = self.server.pull(index, 0.0)
        self.workers[index].receive(reply, 0.0)
        return reply

    def step(self, index: int, *gradient: float) -> Update | None:
        return self.workers[index].step(floats(*gradient), 10, 0.0)

    def push(self, index: int, *gradient: float) -> Sequence[Applied]:
        update = self.step(index, *gradient)
        assert update is not None
        return self.server.push(index, update, 0.0)


def test_bsp_by_hand() -> None:
    """η' = 1/2, M = 2: pushes of (2, 0) and (1, 4) take their mean (1.5, 2) off (8, 16)."""
    group = Group(Bsp(name="bsp", learning_rate=0.5), 2)
    assert group.push(1, 2, 8) == ()
    assert (group.server.ready(1), group.server.ready(0)) == (False, True)
    assert list(group.server.awaited()) == [0]
    assert group.push(0, 4, 0) == [Applied(0, 0), Applied(1, 1)]
    assert group.server.parameters.tolist() == [6.5, 14]
    assert list(group.server.awaited()) == [0, 1]
    assert group.pull(1).version == 2
    assert group.workers[1].parameters.tolist() == [6.5, 14]


@pytest.mark.parametrize(
    "config", [Bsp(name="bsp"), Ssp(name="ssp"), FixedAdacomm(name="fixed-adacomm")]
)
def test_a_payload_of_the_wrong_kind_is_refused_and_nothing_applied(
    config: AlgorithmConfig,
) -> None:
    group = Group(config, 1)
    wrong = Update(Sparse(np.array([0], np.int32), floats(1)), 0, samples=1)
    with pytest.raises(RejectedError, match="a Sparse payload, expected a Dense one"):
        group.server.push(0, wrong, 0.0)
    assert group.server.version == 0
    assert group.server.parameters.tolist() == [8, 16]


def test_fixed_adacomm_by_hand() -> None:
    """η' = 1/2, τ = 2, M = 2: the sums (3, 0) and (1, 8) take their mean (2, 4) off (8, 16)."""
    group = Group(FixedAdacomm(name="fixed-adacomm", learning_rate=0.5, local_steps=2), 2)
    assert group.step(0, 2, -2) is None
    assert group.workers[0].parameters.tolist() == [7, 17]  # it goes on from its own step
    update = group.step(0, 4, 2)
    assert update is not None
    assert (update.samples, update.steps, update.version) == (20, 2, 0)
    assert isinstance(update.payload, Dense)
    assert update.payload.values.tolist() == [3, 0]
    assert group.server.push(0, update, 0.0) == ()
    assert group.step(1, 2, 0) is None
    assert group.push(1, 0, 16) == [Applied(0, 0), Applied(1, 1)]
    assert group.server.parameters.tolist() == [6, 12]
    group.pull(0)
    assert group.workers[0].parameters.tolist() == [6, 12]
    assert group.step(0, 0, 0) is None  # it counts anew


def test_ssp_by_hand() -> None:
    """η' = 1/2, M = 2, s = 2; w0 makes three steps before w1 makes its first.

    who  gradient  server      its copy     step  min known  then
    -    -         8    16     8    16      0     0
    w0   (4, 0)    7    16     6    16      1     0          goes on: 1 - 0 < 2
    w0   (0, 8)    7    14     6    12      2     0          waits: 2 - 0 >= 2, and w1 has made none
    w1   (2, 2)    6.5  13.5   7    15      1     0          goes on; w0 pulls: 2 - 1 < 2
    w0   (2, 0)    6    13.5   5.5  13.5    3     1          waits: 3 - 1 >= 2 and 3 - 1 is no lead
    w1   (0, 0)    6    13.5   6    13.5    2     0          pulls: 2 - 0 >= 2; w0 pulls: 3 - 2 < 2
    """
    group = Group(Ssp(name="ssp", learning_rate=0.5, slack=2), 2)
    assert group.push(0, 4, 0) == [Applied(0, 0)]
    assert group.pull(0).model.entries == 0
    assert group.workers[0].parameters.tolist() == [6, 16]
    assert group.push(0, 0, 8) == [Applied(0, 1, staleness=1)]  # it knows of its own step only
    assert not group.server.ready(0)
    assert list(group.server.awaited()) == [1]
    assert group.push(1, 2, 2) == [Applied(1, 2, staleness=2)]
    assert group.pull(1).model.entries == 0
    assert group.workers[1].parameters.tolist() == [7, 15]
    assert group.pull(0).version == 3
    assert group.workers[0].parameters.tolist() == [6.5, 13.5]
    assert group.push(0, 2, 0) == [Applied(0, 3)]
    assert group.server.parameters.tolist() == [6, 13.5]
    assert group.workers[0].parameters.tolist() == [5.5, 13.5]
    assert not group.server.ready(0)
    assert group.push(1, 0, 0) == [Applied(1, 4, staleness=4)]
    assert group.pull(1).version == group.pull(0).version == 5
    assert group.workers[1].parameters.tolist() == group.workers[0].parameters.tolist() == [6, 13.5]


def test_an_ssp_pull_that_was_lost_is_answered_by_the_model_again() -> None:
    group = Group(Ssp(name="ssp", slack=1), 1)
    group.push(0, 1, 1)
    first = group.server.pull(0, 0.0)
    again = group.server.pull(0, 0.0)
    assert first.model.entries == again.model.entries == 2
    assert (again.version, list(again.note)) == (first.version, list(first.note))


def test_nobody_waits_for_an_ssp_worker_that_has_left() -> None:
    group = Group(Ssp(name="ssp", slack=1), 2)
    group.push(0, 1, 1)
    assert not group.server.ready(0)
    group.server.leave(1, 0.0)
    assert group.server.ready(0)
