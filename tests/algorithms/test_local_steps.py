"""BSP, SSP, TAP, Fixed ADACOMM, ADACOMM and ADSP, worked by hand; exact in float32."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np
import pytest

from testbed.algorithms import Adacomm, Adsp, Bsp, FixedAdacomm, Ssp, Tap
from testbed.algorithms.base import AlgorithmConfig, Applied, Measured, Orders, Update
from testbed.errors import RejectedError
from testbed.payloads import Dense, Sparse
from testbed.values.units import Duration

GroupOf = Any
"""Makes some workers and a server on two parameters that begin at 8 and 16; see conftest.py."""


def test_bsp_by_hand(group_of: GroupOf) -> None:
    """η' = 1/2, M = 2: pushes of (2, 0) and (1, 4) take their mean (1.5, 2) off (8, 16)."""
    group = group_of(Bsp(name="bsp", learning_rate=0.5), 2)
    assert group.push(1, 2, 8) == ()
    assert (group.server.ready(1), group.server.ready(0)) == (False, True)
    assert list(group.server.awaited()) == [0]
    assert group.push(0, 4, 0) == [Applied(0, 0), Applied(1, 1)]
    assert group.server.parameters.tolist() == [6.5, 14]
    assert list(group.server.awaited()) == [0, 1]
    assert group.pull(1).version == 2
    assert group.workers[1].parameters.tolist() == [6.5, 14]


@pytest.mark.parametrize(
    "config",
    [
        *(Bsp(name="bsp"), Ssp(name="ssp"), Tap(name="tap"), Adsp(name="adsp")),
        *(FixedAdacomm(name="fixed-adacomm"), Adacomm(name="adacomm")),
    ],
)
def test_a_payload_of_the_wrong_kind_is_refused_and_nothing_applied(
    group_of: GroupOf, config: AlgorithmConfig
) -> None:
    group = group_of(config, 1)
    wrong = Update(Sparse(np.array([0], np.int32), np.ones(1, np.float32)), 0, samples=1)
    with pytest.raises(RejectedError, match="a Sparse payload, expected a Dense one"):
        group.server.push(0, wrong, 0.0)
    assert group.server.version == 0
    assert group.server.parameters.tolist() == [8, 16]


def test_fixed_adacomm_by_hand(group_of: GroupOf) -> None:
    """η' = 1/2, τ = 2, M = 2: the sums (3, 0) and (1, 8) take their mean (2, 4) off (8, 16)."""
    group = group_of(FixedAdacomm(name="fixed-adacomm", learning_rate=0.5, local_steps=2), 2)
    assert group.step(0, 2, -2) is None
    assert group.workers[0].parameters.tolist() == [7, 17]  # it continues from its own step
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
    assert group.step(0, 0, 0) is None  # its count restarts


def test_ssp_by_hand(group_of: GroupOf) -> None:
    """η' = 1/2, M = 2, s = 2; w0 makes three steps before w1 makes its first.

    who  gradient  server      its copy     step  min known  then
    -    -         8    16     8    16      0     0
    w0   (4, 0)    7    16     6    16      1     0          continues: 1 - 0 < 2
    w0   (0, 8)    7    14     6    12      2     0          waits: 2 - 0 >= 2, and w1 has made none
    w1   (2, 2)    6.5  13.5   7    15      1     0          continues; w0 pulls: 2 - 1 < 2
    w0   (2, 0)    6    13.5   5.5  13.5    3     1          waits: 3 - 1 >= 2 and 3 - 1 is no lead
    w1   (0, 0)    6    13.5   6    13.5    2     0          pulls: 2 - 0 >= 2; w0 pulls: 3 - 2 < 2
    """
    group = group_of(Ssp(name="ssp", learning_rate=0.5, slack=2), 2)
    assert group.push(0, 4, 0) == [Applied(0, 0)]
    assert group.pull(0).model.entries == 0
    assert group.workers[0].parameters.tolist() == [6, 16]
    assert group.push(0, 0, 8) == [Applied(0, 1, staleness=1)]  # it knows only its own step
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


def test_a_lost_ssp_pull_is_answered_by_the_model_again(group_of: GroupOf) -> None:
    group = group_of(Ssp(name="ssp", slack=1), 1)
    group.push(0, 1, 1)
    first = group.server.pull(0, 0.0)
    again = group.server.pull(0, 0.0)
    assert first.model.entries == again.model.entries == 2
    assert (again.version, list(again.note)) == (first.version, list(first.note))


def test_an_ssp_worker_that_rejoins_pulls(group_of: GroupOf) -> None:
    """One worker, slack 3, learning rate 1/2: after a step without a pull its copy is (7, 16). The
    server's model is then different, (6, 16), and the worker gets it when it rejoins."""
    group = group_of(Ssp(name="ssp", learning_rate=0.5, slack=3), 1)
    group.push(0, 2, 0)
    assert group.pull(0).model.entries == 0
    group.server.parameters[0] = 6
    group.server.join(0)
    assert group.pull(0).version == 1
    assert group.workers[0].parameters.tolist() == [6, 16]
    assert group.workers[0].version == 1


def test_an_ssp_worker_that_left_is_not_awaited(group_of: GroupOf) -> None:
    group = group_of(Ssp(name="ssp", slack=1), 2)
    group.push(0, 1, 1)
    assert not group.server.ready(0)
    group.server.leave(1, 0.0)
    assert group.server.ready(0)


def test_tap_by_hand(group_of: GroupOf) -> None:
    """η' = 1/2, M = 2: half of every push is applied on arrival, also after w1 has left."""
    group = group_of(Tap(name="tap", learning_rate=0.5), 2)
    assert group.push(1, 4, 0) == [Applied(1, 0)]
    assert group.push(0, 0, 8) == [Applied(0, 1, staleness=1)]
    assert group.server.parameters.tolist() == [7, 14]
    group.server.leave(1, 0.0)
    group.pull(0)
    assert group.workers[0].parameters.tolist() == [7, 14]
    group.push(0, 4, 0)
    assert group.server.parameters.tolist() == [6, 14]


def measure(group: Any, now: float, loss: float) -> None:
    assert group.server.wants_loss()
    group.server.measured(Measured(now, group.server.version, loss))


def test_adacomm_by_hand(group_of: GroupOf) -> None:
    """τ0 = 8, T0 = 60 s, F0 = 4, one worker.

    The round that closes at 61 s is held; F = 1: √(1/4) * 8 = 4 < 8, so τ = 4.
    The next at 100 s is not: 2 T0 is to come. At 121 s F = 1: 4 is not less than 4, so τ = 4/2.
    At 300 s F = 0.02: √0.005 * 8 = 0.57, so τ = 1. The next is due at 360 s.
    """
    config = Adacomm(name="adacomm", learning_rate=1.0, local_steps=8)
    group = group_of(config, 1)
    measure(group, 0.0, 4.0)
    rounds = [(61.0, 8, 1.0), (100.0, 4, None), (121.0, 4, 1.0), (300.0, 2, 0.02), (359.0, 1, None)]
    for now, local_steps, loss in rounds:
        for _ in range(local_steps - 1):
            assert group.step(0, 0, 0, now=now) is None
        assert len(group.push(0, 0, 0, now=now)) == 1
        assert group.server.ready(0) == (loss is None)
        if loss is not None:
            group.server.measured(Measured(now, 0, 4.0))  # for an older model
            measure(group, now, loss)
        group.pull(0, now=now)
    assert group.workers[0].orders == Orders(local_steps=1)
    group.push(0, 0, 0, now=360.0)
    assert not group.server.ready(0)


def test_adacomm_searches_for_its_first_tau_by_hand(group_of: GroupOf) -> None:
    """Trials of T0 = 60 s, each from (8, 16), with F0 = 4.

    τ = 1 ends at 60 s with F = 3: (4 - 3) / 60. τ = 5 at 130 s with F = 1: 3 / 70, the best. The
    others end 60 s after they began with F = 3.5. Then it trains from (8, 16), and adapts 60 s on.
    """
    group = group_of(Adacomm(name="adacomm", learning_rate=1.0), 1)
    measure(group, 0.0, 4.0)
    now = 0.0
    for local_steps in (1, 5, 10, 20, 40, 60, 80, 100):
        assert group.workers[0].parameters.tolist() == [8, 16]
        now += 70.0 if local_steps == 5 else 60.0
        for _ in range(local_steps - 1):
            assert group.step(0, 1, 0, now=now) is None
        group.push(0, 1, 0, now=now)
        assert group.server.parameters.tolist() == [8 - local_steps, 16]
        assert not group.server.ready(0)
        measure(group, now, {1: 3.0, 5: 1.0}.get(local_steps, 3.5))
        group.pull(0, now=now)
    assert group.workers[0].orders == Orders(local_steps=5)
    assert group.workers[0].parameters.tolist() == [8, 16]
    for passed in (59.0, 60.0):
        for _ in range(4):
            assert group.step(0, 0, 0) is None
        group.push(0, 0, 0, now=now + passed)
        assert group.server.ready(0) == (passed < 60)
        if passed < 60:
            group.pull(0, now=now + passed)
    measure(group, now + 60, 0.16)  # √(0.16 / 4) * 5 = 1
    assert group.pull(0, now=now + 60).orders == Orders(local_steps=1)


def test_an_adsp_worker_commits_at_its_timeouts_by_hand(group_of: GroupOf) -> None:
    """Every 30 s, and a commit takes 4 s: timeouts at 30, 60, ... even amid a batch, each with
    the finished batches. At 90 none has since the last: the next end, 95, is the timeout.
    """
    group = group_of(Adsp(name="adsp", learning_rate=0.5), 1)
    worker = group.workers[0]
    worker.obey(Orders(commit_interval=30.0), 0.0)
    assert worker.alarm() == inf  # nothing to commit
    assert group.step(0, 2, 0, now=20.0) is None
    assert worker.alarm() == 30
    update = worker.wake(30.0)  # the batch that ends at 40 is in progress
    assert (update.steps, update.samples) == (1, 10)
    assert [array.tolist() for array in update.payload.arrays] == [[1, 0]]
    group.server.push(0, update, 32.0)
    group.pull(0, now=34.0)
    assert worker.parameters.tolist() == [7, 16]
    assert group.step(0, 0, 4, now=44.0) is None
    assert worker.parameters.tolist() == [7, 14]
    assert worker.alarm() == 60
    update = group.step(0, 2, 0, now=60.0)  # which this batch ends at
    assert (update.steps, worker.alarm()) == (2, inf)
    group.server.push(0, update, 62.0)
    group.pull(0, now=64.0)
    update = group.step(0, 0, 0, now=95.0)
    assert update.steps == 1
    group.server.push(0, update, 97.0)
    group.pull(0, now=99.0)
    assert group.step(0, 0, 0, now=110.0) is None
    assert worker.alarm() == 120
    worker.obey(Orders(commit_interval=10.0), 110.0)  # 100 has passed
    assert worker.alarm() == 110
    worker.wake(110.0)
    group.step(0, 0, 0, now=111.0)
    assert worker.alarm() == 120
    worker.wake(135.0)
    group.step(0, 0, 0, now=136.0)
    assert worker.alarm() == 145  # a whole interval late: the grid restarts there


@pytest.mark.parametrize(
    ("before", "after", "timeouts"),
    [
        (30.0, 20.0, [120, 140, 160, 180]),  # rate 2, then 3: 120 is a timeout under both
        (20.0, 60.0, [120, 180]),  # 3, then 1: the timeout at the checkpoint counts
        (50.0, 15.0, [120, 135, 150]),  # the last was at 100: 115 has passed
        (50.0, 25.0, [125, 150]),
        (15.0, 15.0, [120, 135]),
        (60 / 9, 60.0, [120, 180]),  # nine times 60/9 after 60 is 120.00000000000004
    ],
)
def test_an_adsp_worker_at_a_checkpoint_by_hand(
    group_of: GroupOf, before: float, after: float, timeouts: list[float]
) -> None:
    """The order arrives at 120 s, before the timeout of the same moment."""
    group = group_of(Adsp(name="adsp"), 1)
    worker = group.workers[0]
    worker.obey(Orders(commit_interval=before), 0.0)
    group.step(0, 0, 0, now=1.0)
    while worker.alarm() < 120:
        worker.wake(worker.alarm())
        group.step(0, 0, 0, now=1.0)
    worker.obey(Orders(commit_interval=after), 120.0)
    for timeout in timeouts:
        assert worker.alarm() == pytest.approx(timeout)
        worker.wake(timeout)
        group.step(0, 0, 0, now=timeout + 1)


def test_an_adsp_worker_that_commits_after_batches_by_hand(group_of: GroupOf) -> None:
    """Ordered to commit every 30 s: after 30 s, and after 26 s once a commit has taken 4 s."""
    group = group_of(Adsp(name="adsp", learning_rate=0.5, commit="after_batch"), 1)
    worker = group.workers[0]
    worker.obey(Orders(commit_interval=30.0), 0.0)
    assert group.step(0, 2, 0, now=29.0) is None
    assert worker.parameters.tolist() == [7, 16]
    update = group.step(0, 0, 4, now=31.0)  # checked after a batch
    assert update is not None
    assert (update.steps, update.samples) == (2, 20)
    assert [array.tolist() for array in update.payload.arrays] == [[1, 2]]
    group.server.push(0, update, 33.0)
    group.pull(0, now=35.0)
    assert group.step(0, 0, 0, now=60.0) is None
    assert group.step(0, 0, 0, now=61.0) is not None


def test_an_adsp_worker_without_orders_commits_once_per_check_period(group_of: GroupOf) -> None:
    group = group_of(Adsp(name="adsp", check_period=Duration(10)), 1)
    assert group.step(0, 0, 0, now=9.0) is None
    assert group.step(0, 0, 0, now=10.0) is not None


@pytest.mark.parametrize(
    "config",
    [
        Bsp(name="bsp", learning_rate=4.0, decay=0.5, decay_steps=2),
        Ssp(name="ssp", learning_rate=4.0, decay=0.5, decay_steps=2),
        Tap(name="tap", learning_rate=4.0, decay=0.5, decay_steps=2),
    ],
    ids=lambda config: config.name,
)
def test_the_local_rate_decays_with_a_workers_steps(
    group_of: GroupOf, config: AlgorithmConfig
) -> None:
    """η' is 4, 4, 2, 2, 1: for a gradient of (1, 2)."""
    group = group_of(config, 1)
    for rate in (4, 4, 2, 2, 1):
        (values,) = group.step(0, 1, 2).payload.arrays
        assert values.tolist() == [rate, 2 * rate]


@pytest.mark.parametrize(
    "config",
    [
        FixedAdacomm(
            name="fixed-adacomm", learning_rate=4.0, local_steps=5, decay=0.5, decay_steps=2
        ),
        Adsp(
            name="adsp",
            learning_rate=4.0,
            check_period=Duration(5),
            epoch=Duration(10),
            decay=0.5,
            decay_steps=2,
        ),
    ],
    ids=lambda config: config.name,
)
def test_the_local_rate_decays_within_a_push(group_of: GroupOf, config: AlgorithmConfig) -> None:
    """Five steps with a gradient of (1, 2): 4 + 4 + 2 + 2 + 1 = 13 times that."""
    group = group_of(config, 1)
    for now in (1.0, 2.0, 3.0, 4.0):
        assert group.step(0, 1, 2, now=now) is None
    (values,) = group.step(0, 1, 2, now=5.0).payload.arrays
    assert values.tolist() == [13, 26]


@pytest.mark.parametrize("option", [{"decay": 0.5}, {"decay_steps": 2}])
def test_decay_and_its_steps_must_be_set_together(option: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"without .*, expected both `decay`"):
        Bsp.model_validate({"name": "bsp", **option})


def test_adsp_at_its_checkpoints_by_hand(group_of: GroupOf) -> None:
    """η' = 1, M = 2, d = 2: at 60 s c is (3, 1), so C = 5; w0 is to commit 2 times and w1 4."""
    config = Adsp(name="adsp", learning_rate=1.0, commit_rate=2)
    group = group_of(config, 2)
    assert group.server.next_tick(0.0) == 0
    assert group.server.tick(0.0).orders == dict.fromkeys((0, 1), Orders(commit_interval=30.0))
    assert group.server.next_tick(0.0) == 60
    zeros = Dense(np.array([2, 4], np.float32))
    for worker, now in ((0, 20.0), (0, 40.0), (1, 50.0), (0, 58.0)):
        update = Update(zeros, group.server.version, samples=10)
        assert group.server.push(worker, update, now) == [Applied(worker, group.server.version - 1)]
    assert group.server.parameters.tolist() == [4, 8]  # 4 * 1/2 of (2, 4)
    orders = {0: Orders(commit_interval=30.0), 1: Orders(commit_interval=15.0)}
    assert group.server.tick(60.0).orders == orders
    group.server.leave(1, 70.0)
    assert set(group.server.tick(120.0).orders) == {0}
    assert not group.server.wants_loss()


def test_adsp_with_momentum_by_hand(group_of: GroupOf) -> None:
    """μ = 1/2, M = 2: V = (1, 2) / 2 after the first commit of (2, 4), and half of that and (1, 2)
    after the second: (8, 16) - (0.5, 1) - (0.75, 1.5).
    """
    server = group_of(Adsp(name="adsp", momentum=0.5), 2).server
    for worker in (0, 1):
        server.push(worker, Update(Dense(np.array([2, 4], np.float32)), 0, samples=10), 1.0)
    assert server.parameters.tolist() == [6.75, 13.5]
    assert server.parameters.dtype == np.float32


def test_adsp_asks_for_the_losses_of_its_trials(group_of: GroupOf) -> None:
    """At the start, the middle and the end; at the end the next rate waits for the loss."""
    group = group_of(Adsp(name="adsp"), 1)
    server = group.server
    assert server.tick(0.0).orders == {0: Orders(commit_interval=60.0)}
    measure(group, 0.0, 4.0)
    assert server.next_tick(0.0) == 30
    assert server.tick(30.0).orders == {}
    measure(group, 30.0, 3.0)
    assert server.tick(60.0).orders == {}
    assert server.next_tick(60.0) > 60
    measure(group, 60.0, 2.5)
    assert server.next_tick(60.5) == 60.5  # the loss came a little later
    assert server.tick(60.5).orders == {0: Orders(commit_interval=30.0)}
    assert not server.wants_loss()  # the loss at the end is also the next trial's start
