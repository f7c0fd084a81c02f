"""FedAvg and FedBuff, worked by hand. All numbers are exact in float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from testbed.algorithms import FedAvg, FedBuff
from testbed.algorithms.base import Applied, Stream

GroupOf = Any
"""Makes some workers and a server on two parameters that begin at 8 and 16; see conftest.py."""


def floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


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
    for index, own in ((0, 30), (1, 10)):
        assert group.workers[index].next_batch_size(Stream(batch_size=50, own=own), 0.0) == own
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
