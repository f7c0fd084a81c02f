"""Federated algorithms, worked by hand. Most numbers are exact in float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from vectors import floats

from testbed.algorithms import DiLoCo, FedAsync, FedAvg, FedBuff, FedNova, FedOpt, FedProx
from testbed.algorithms.base import Applied, Stream, Update
from testbed.algorithms.optimizers import Sgd
from testbed.algorithms.parts.rounds import own
from testbed.algorithms.parts.schedule import StepDecay
from testbed.payloads import Dense

GroupOf = Any
"""Makes some workers and a server on two parameters that begin at 8 and 16; see conftest.py."""


def test_a_local_epoch_ends_with_a_smaller_batch(group_of: GroupOf) -> None:
    """Five samples in batches of two, twice: 2, 2, 1, 2, 2, 1; then it pushes."""
    group = group_of(FedAvg(name="fedavg", learning_rate=0.5, local_epochs=2), 1)
    worker, stream = group.workers[0], Stream(batch_size=2, own=5)
    asked = []
    update = None
    while update is None:
        asked.append(worker.next_batch_size(stream, 0.0))
        update = worker.step(floats(1, 0), asked[-1], 0.0)
    assert asked == [2, 2, 1, 2, 2, 1]
    assert (update.samples, update.steps) == (10, 6)
    assert worker.parameters.tolist() == [5, 16]  # 8 - 6/2


@pytest.mark.parametrize(("own", "asked"), [(5, [2, 3]), (6, [2, 2, 2]), (3, [3]), (2, [2])])
def test_a_single_last_sample_joins_the_previous_batch_where_a_step_needs_two(
    own: int, asked: list[int], group_of: GroupOf
) -> None:
    group = group_of(FedAvg(name="fedavg"), 1)
    worker, stream = group.workers[0], Stream(batch_size=2, own=own, least=2)
    found, update = [], None
    while update is None:
        found.append(worker.next_batch_size(stream, 0.0))
        update = worker.step(floats(1, 0), found[-1], 0.0)
    assert (found, update.samples) == (asked, own)


def test_fedavg_weighs_by_samples_by_hand(group_of: GroupOf) -> None:
    """η = 1/2; w0 has 30 samples and moves by (4, 0), w1 10 and by (0, 8): (3, 2) off (8, 16)."""
    group = group_of(FedAvg(name="fedavg", learning_rate=0.5), 2)
    for index, count in ((0, 30), (1, 10)):
        stream = Stream(batch_size=50, own=count)
        assert group.workers[index].next_batch_size(stream, 0.0) == count
    update = group.workers[1].step(floats(0, 16), 10, 0.0)
    assert update is not None
    assert group.server.push(1, update, 0.0) == ()
    assert list(group.server.awaited()) == [0]
    update = group.workers[0].step(floats(8, 0), 30, 0.0)
    assert update is not None
    assert group.server.push(0, update, 0.0) == [Applied(0, 0), Applied(1, 1)]
    assert group.server.parameters.tolist() == [5, 14]


def test_a_round_uses_a_random_subset_of_the_workers(group_of: GroupOf) -> None:
    """C = 1/2 of four: two are in each round, the others wait; in ten rounds each took part."""
    group = group_of(FedAvg(name="fedavg", fraction=0.5), 4, pulled=False)
    seen = set()
    for number in range(10):
        chosen = [index for index in range(4) if group.server.ready(index)]
        assert len(chosen) == 2
        assert set(group.server.awaited()) == set(chosen)
        seen |= set(chosen)
        for index in chosen:
            group.pull(index)
        first, second = (group.push(index, 1, 1) for index in chosen)
        assert first == ()
        assert [one.version for one in second] == [2 * number, 2 * number + 1]
    assert seen == {0, 1, 2, 3}


def test_at_least_one_worker_is_in_a_round(group_of: GroupOf) -> None:
    group = group_of(FedAvg(name="fedavg", fraction=0.01), 4, pulled=False)
    assert sum(group.server.ready(index) for index in range(4)) == 1


def test_a_round_that_all_members_left_uses_other_workers(group_of: GroupOf) -> None:
    group = group_of(FedAvg(name="fedavg", fraction=0.5), 4, pulled=False)
    chosen = [index for index in range(4) if group.server.ready(index)]
    for index in chosen:
        assert group.server.leave(index, 0.0) == ()
    assert sum(group.server.ready(index) for index in range(4) if index not in chosen) == 1


def test_a_worker_that_joins_after_all_have_left_is_a_round_alone(group_of: GroupOf) -> None:
    group = group_of(FedAvg(name="fedavg"), 2)
    for index in (0, 1):
        group.server.leave(index, 0.0)
    group.server.join(1)
    group.pull(1)
    assert len(group.push(1, 1, 1)) == 1


def test_a_worker_that_left_is_in_its_round_and_in_no_later_one(group_of: GroupOf) -> None:
    """w0 pushes (2, 0) and leaves; w1 pushes (0, 4): the mean (1, 2) is taken off (8, 16)."""
    group = group_of(FedAvg(name="fedavg", learning_rate=1.0), 2)
    group.push(0, 2, 0)
    group.server.leave(0, 0.0)
    assert len(group.push(1, 0, 4)) == 2
    assert group.server.parameters.tolist() == [7, 14]
    assert list(group.server.awaited()) == [1]


def test_fedbuff_by_hand(group_of: GroupOf) -> None:
    """η_l = 1/2, Q = 1, K = 2, η_g = 1/2; w2 is stale in the second step of the server.

    who  gradient   Δ        τ  s(τ)  Δ̄         then
    w0   (8, 0)     (4, 0)   0  1     (4, 0)
    w1   (0, 16)    (0, 8)   0  1     (4, 8)     (8, 16) - 1/2 * (2, 4) = (7, 14)
    w0   (4, 4)     (2, 2)   1  1/√2
    w2   (0, 4)     (0, 2)   1  1/√2  (2, 4)/√2  (7, 14) - 1/2 * (1, 2)/√2
    """
    config = FedBuff(
        name="fedbuff", learning_rate=0.5, server_learning_rate=0.5, local_steps=1, buffer_size=2
    )
    group = group_of(config, 3)
    assert group.push(0, 8, 0) == ()
    assert group.server.ready(0)  # no worker waits
    assert group.pull(0).version == 0
    assert group.push(1, 0, 16) == [Applied(0, 0), Applied(1, 1)]
    assert group.server.parameters.tolist() == [7, 14]
    assert group.pull(1).version == 2
    assert group.push(0, 4, 4) == ()
    assert group.push(2, 0, 4) == [
        Applied(worker, version, staleness=2, sigma_mean=1, sigma_max=1, step_scale=1 / 2**0.5)
        for worker, version in ((0, 2), (2, 3))
    ]
    assert group.server.parameters == pytest.approx([7 - 0.5 / 2**0.5, 14 - 1 / 2**0.5])


def test_fedbuff_without_damping(group_of: GroupOf) -> None:
    config = FedBuff(name="fedbuff", learning_rate=1.0, local_steps=1, buffer_size=1, damping=False)
    group = group_of(config, 2)
    group.push(0, 1, 0)
    assert group.push(1, 2, 4) == [Applied(1, 1, staleness=1)]
    assert group.server.parameters.tolist() == [5, 12]


def test_fedbuff_pushes_after_its_local_steps(group_of: GroupOf) -> None:
    group = group_of(FedBuff(name="fedbuff", learning_rate=0.5, local_steps=3), 1)
    assert group.step(0, 2, 0) is group.step(0, 2, 0) is None
    update = group.step(0, 2, 0)
    assert update is not None
    assert (update.steps, update.samples) == (3, 30)
    assert np.array_equal(next(iter(update.payload.arrays)), [3, 0])


def test_local_training_by_hand(group_of: GroupOf) -> None:
    """η = 1/2 with momentum 1/2 and μ = 1: twice the gradient (8, 0), one epoch of two batches.

    g           v        w
    (8, 0)      (8, 0)   (8, 16) - (4, 0) = (4, 16)
    (8-4, 0)    (8, 0)   (4, 16) - (4, 0) = (0, 16)    since μ (w - w_0) = (-4, 0)
    """
    config = FedAvg(name="fedavg", learning_rate=0.5, optimizer=Sgd(momentum=0.5), proximal=1.0)
    group = group_of(config, 1)
    worker, stream = group.workers[0], Stream(batch_size=10, own=20)
    worker.next_batch_size(stream, 0.0)
    assert worker.step(floats(8, 0), 10, 0.0) is None
    assert worker.parameters.tolist() == [4, 16]
    update = worker.step(floats(8, 0), 10, 0.0)
    assert update.payload.values.tolist() == [8, 0]
    assert worker.parameters.tolist() == [0, 16]


@pytest.mark.parametrize(("keep", "second"), [(False, 8), (True, 12)])
def test_momentum_is_kept_between_rounds_only_if_requested(
    keep: bool, second: float, group_of: GroupOf
) -> None:
    """v = 8 after the first round; then 8, or 8/2 + 8."""
    config = FedAvg(
        name="fedavg", learning_rate=1.0, optimizer=Sgd(momentum=0.5), keep_optimizer=keep
    )
    group = group_of(config, 1)
    steps = []
    for _ in range(2):
        group.workers[0].next_batch_size(Stream(batch_size=10, own=10), 0.0)
        update = group.step(0, 8, 0)
        steps.append(update.payload.values[0])
        group.server.push(0, update, 0.0)
        group.pull(0)
    assert steps == [8, second]


def test_a_schedule_follows_the_rounds_of_the_server(group_of: GroupOf) -> None:
    """η = 1, halved after every round, with one of two workers in each: 8, 4, 2."""
    schedule = StepDecay(every=1.0, gamma=0.5)
    config = FedAvg(name="fedavg", learning_rate=1.0, fraction=0.5, schedule=schedule)
    group = group_of(config, 2, pulled=False)
    steps = []
    for _ in range(3):
        (index,) = (index for index in (0, 1) if group.server.ready(index))
        group.pull(index)
        group.workers[index].next_batch_size(Stream(batch_size=10, own=10), 0.0)
        update = group.step(index, 8, 0)
        steps.append(update.payload.values[0])
        group.server.push(index, update, 0.0)
    assert steps == [8, 4, 2]


def test_a_schedule_by_rounds_is_refused_without_rounds() -> None:
    with pytest.raises(ValidationError, match="by rounds"):
        FedBuff(name="fedbuff", schedule=StepDecay(every=1.0))


def test_a_straggler_trains_for_fewer_epochs(group_of: GroupOf) -> None:
    """Of 4 epochs of one batch each; every number from 1 to 4 is drawn in 60 rounds.

    Each counts as 4 epochs: the worker has as many samples as one that is no straggler.
    """
    config = FedProx(name="fedprox", local_epochs=4, stragglers=1.0)
    worker = group_of(config, 1).workers[0]
    found = set()
    for _ in range(60):
        update = None
        while update is None:
            worker.next_batch_size(Stream(batch_size=10, own=10), 0.0)
            update = worker.step(floats(1, 1), 10, 0.0)
        found.add(update.steps)
        assert own(update) == 40
    assert found == {1, 2, 3, 4}


def test_the_work_of_a_straggler_counts_in_full(group_of: GroupOf) -> None:
    """FedProx's algorithm 2: of two workers with 10 samples each, one did 1 of 4 epochs.

    U is (8, 0) and (0, 2), and their mean (4, 1).
    """
    group = group_of(FedProx(name="fedprox", local_epochs=4), 2)
    group.server.push(0, Update(Dense(floats(8, 0)), 0, 40, 4), 0.0)
    group.server.push(1, Update(Dense(floats(0, 2)), 0, 10, 1, note={"left_out": 30.0}), 0.0)
    assert group.server.parameters.tolist() == [8 - 4, 16 - 1]


def test_fednova_removes_the_bias_of_a_straggler(group_of: GroupOf) -> None:
    """Likewise: d is (2, 0) and (0, 2), p 1/2 each and τ_eff 5/2: 5/2 (1, 1)."""
    group = group_of(FedNova(name="fednova", local_epochs=4), 2)
    group.server.push(0, Update(Dense(floats(8, 0)), 0, 40, 4), 0.0)
    group.server.push(1, Update(Dense(floats(0, 2)), 0, 10, 1, note={"left_out": 30.0}), 0.0)
    assert group.server.parameters.tolist() == [8 - 2.5, 16 - 2.5]


def test_fednova_averages_directions_by_hand(group_of: GroupOf) -> None:
    """w0 takes 1 step over 10 samples, w1 3 over 30: U (4, 0) and (0, 12).

    d is (4, 0) and (0, 4), p 1/4 and 3/4, so τ_eff = 1/4 + 9/4 = 5/2, and the model moves by
    5/2 (1, 3) = (2.5, 7.5). FedAvg would have moved it by (1, 9).
    """
    group = group_of(FedNova(name="fednova", learning_rate=0.5), 2)
    group.server.push(0, Update(Dense(floats(4, 0)), 0, 10, 1), 0.0)
    group.server.push(1, Update(Dense(floats(0, 12)), 0, 30, 3), 0.0)
    assert group.server.parameters.tolist() == [5.5, 8.5]


@pytest.mark.parametrize(
    "options", [{"optimizer": "adam"}, {"optimizer": {"sgd": {"momentum": 0.5}}}, {"proximal": 0.1}]
)
def test_fednova_is_for_plain_sgd(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="sgd without momentum and proximal term"):
        FedNova.model_validate({"name": "fednova", **options})


@pytest.mark.parametrize(
    ("optimizer", "moved"),
    [
        ("sgd", [2 * 2, 2 * 4]),  # m = Δ
        ("adam", [2 * 1 / ((19 / 16) ** 0.5 + 0.5), 2 * 2 / ((67 / 16) ** 0.5 + 0.5)]),
        ("adagrad", [2 * 1 / (4.25**0.5 + 0.5), 2 * 2 / (16.25**0.5 + 0.5)]),
        ("yogi", [2 * 1 / (1.25**0.5 + 0.5), 2 * 2 / (4.25**0.5 + 0.5)]),
    ],
)
def test_fedopt_by_hand(optimizer: Any, moved: list[float], group_of: GroupOf) -> None:
    """Δ = (2, 4) with β1 = 1/2, η = 2, τ = 1/2, so that v begins at 1/4.

    m = Δ/2. With β2 = 3/4: adam v = 3/16 + Δ²/4 = (19/16, 67/16); yogi v = 1/4 + Δ²/4 =
    (5/4, 17/4); adagrad v = 1/4 + Δ² = (17/4, 65/4).
    """
    config = FedOpt(
        name="fedopt",
        server_optimizer=optimizer,
        server_learning_rate=2.0,
        beta1=0.5,
        beta2=0.75,
        tau=0.5,
    )
    group = group_of(config, 1)
    group.server.push(0, Update(Dense(floats(2, 4)), 0, 10, 1), 0.0)
    assert (floats(8, 16) - group.server.parameters).tolist() == pytest.approx(moved, rel=1e-6)


def test_fedasync_mixes_models_by_hand(group_of: GroupOf) -> None:
    """α = 1/2 with a polynomial of a = 1: w0's (0, 16) is half of the new model, w1's (4, 8), which
    is stale by one update, a quarter: (8, 16), (4, 16), (4, 14).
    """
    config = FedAsync(
        name="fedasync", learning_rate=1.0, proximal=0.0, local_steps=1, mixing=0.5, a=1.0
    )
    group = group_of(config, 2)
    assert group.push(0, 8, 0) == [Applied(0, 0)]
    assert group.server.parameters.tolist() == [4, 16]
    applied = group.push(1, 4, 8)
    assert applied == [Applied(1, 1, staleness=1, sigma_mean=1.0, sigma_max=1, step_scale=0.5)]
    assert group.server.parameters.tolist() == [4, 14]


def test_the_damping_functions_of_fedasync() -> None:
    config = FedAsync(name="fedasync", damping="hinge", a=10.0, b=4.0)
    assert [config.scale(staleness) for staleness in (0, 4, 5, 6)] == [1, 1, 1 / 11, 1 / 21]
    config = FedAsync(name="fedasync", damping="polynomial", a=0.5)
    assert [config.scale(staleness) for staleness in (0, 3)] == [1, 0.5]
    assert FedAsync(name="fedasync", damping="constant").scale(9) == 1


def test_diloco_by_hand(group_of: GroupOf) -> None:
    """Two workers, H = 2, plain SGD of η = 1; the outer step has η = 1/2 and m = 1/2.

    round  Δ_0     Δ_1     Δ       v       outer step Δ/2 + v/4
    1      (4, 0)  (0, 8)  (2, 4)  (2, 4)  (1.5, 3)    (8, 16) → (6.5, 13)
    2      (4, 0)  (0, 8)  (2, 4)  (3, 6)  (1.75, 3.5) → (4.75, 9.5)
    """
    config = DiLoCo(
        name="diloco",
        learning_rate=1.0,
        optimizer=Sgd(),
        local_steps=2,
        outer_learning_rate=0.5,
        outer_momentum=0.5,
    )
    group = group_of(config, 2)
    for expected in ([6.5, 13], [4.75, 9.5]):
        for index, gradient in ((0, (2, 0)), (1, (0, 4))):
            assert group.step(index, *gradient) is None
            group.push(index, *gradient)
        assert group.server.parameters.tolist() == expected
        for index in (0, 1):
            group.pull(index)
