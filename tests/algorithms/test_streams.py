"""DDL and ScaDLES, worked by hand. Numbers are exact in float32 unless said otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from vectors import floats

from testbed.algorithms import Bsp, Ddl, ScaDles
from testbed.algorithms.base import AlgorithmConfig, Applied, Reply, Stream, Update
from testbed.algorithms.frame.contract import CHECKS, examine
from testbed.algorithms.parts.agreement import Injection, chosen
from testbed.errors import RejectedError
from testbed.payloads import Dense, Sparse

GroupOf = Any
"""Makes some workers and a server on two parameters that begin at 8 and 16; see conftest.py."""

PLAIN = {"learning_rate": 0.5, "momentum": 0.0, "weight_decay": 0.0}


def ddl(**options: Any) -> Ddl:
    return Ddl.model_validate({"name": "ddl", **PLAIN, **options})


def scadles(**options: Any) -> ScaDles:
    return ScaDles.model_validate({"name": "scadles", **PLAIN, **options})


def push(group: Any, index: int, gradient: Sequence[float], samples: int) -> Sequence[Applied]:
    update = group.workers[index].step(floats(*gradient), samples, 0.0)
    assert update.steps == 1
    return group.server.push(index, update, 0.0)


# DDL


def test_ddl_averages_a_round(group_of: GroupOf) -> None:
    """(2, 4) and (6, -4): mean (4, 0); η 0.5: 8 - 2 and 16. Batches do not matter."""
    group = group_of(ddl(), 2)
    assert push(group, 0, (2, 4), 64) == ()
    assert not group.server.ready(0)
    applied = push(group, 1, (6, -4), 8)
    assert [one.worker for one in applied] == [0, 1]
    assert group.server.parameters.tolist() == [6, 16]
    assert group.server.version == 2
    assert group.server.ready(0)


def test_momentum_and_weight_decay_are_applied_by_the_server(group_of: GroupOf) -> None:
    """m 0.5, λ 0.25, η 0.5. v = (2, 4) + 0.25 (8, 16) = (4, 8): w = (6, 12);
    then v = (2, 4) + (2, 4) + 0.25 (6, 12) = (5.5, 11): w = (3.25, 6.5)."""
    group = group_of(ddl(momentum=0.5, weight_decay=0.25), 1)
    push(group, 0, (2, 4), 64)
    assert group.server.parameters.tolist() == [6, 12]
    group.pull(0)
    push(group, 0, (2, 4), 64)
    assert group.server.parameters.tolist() == [3.25, 6.5]


def test_the_learning_rate_decays_by_epochs(group_of: GroupOf) -> None:
    """An epoch is 100 samples, a round 64: η is 0.5 for the rounds that begin with 0 and 64
    processed, 0.25 with 128 and 192, and 0.125 with 256. Of gradient 8: 4, 4, 2, 2, 1."""
    group = group_of(ddl(epoch=100, milestones=(1, 2), decay=0.5), 1)
    steps = []
    for _ in range(5):
        before = group.server.parameters.copy()
        push(group, 0, (8, 0), 64)
        group.pull(0)
        steps.append(float((before - group.server.parameters)[0]))
    assert steps == [4, 4, 2, 2, 1]


def test_a_silent_device_is_skipped(group_of: GroupOf) -> None:
    """The others' (2, 4) and (6, -4) are averaged over 2, and it gets their model."""
    group = group_of(ddl(), 3)
    group.tell(2, group.workers[2].on_samples(np.empty(0, np.int64), 0.0))
    assert not group.server.ready(2)
    assert group.server.awaited() == {0, 1}
    push(group, 0, (2, 4), 64)
    applied = push(group, 1, (6, -4), 64)
    assert [one.worker for one in applied] == [0, 1]
    assert group.server.parameters.tolist() == [6, 16]
    assert all(group.server.ready(index) for index in range(3))


def test_a_round_of_silent_devices_is_a_stall(group_of: GroupOf) -> None:
    group = group_of(ddl(), 2)
    for index in range(2):
        group.tell(index, group.workers[index].on_samples(np.empty(0, np.int64), 0.0))
    assert not group.server.ready(0)
    assert not group.server.ready(1)
    assert not group.server.awaited()


def test_a_silent_device_that_leaves_is_forgotten(group_of: GroupOf) -> None:
    group = group_of(ddl(), 2)
    group.tell(1, group.workers[1].on_samples(np.empty(0, np.int64), 0.0))
    assert group.server.leave(1, 0.0) == ()
    assert len(push(group, 0, (2, 4), 64)) == 1


# ScaDLES: batches and weights


@pytest.mark.parametrize(
    ("rate", "batch"), [(38, 38), (3, 8), (5000, 1024), (37.6, 38), (None, 64)]
)
def test_the_batch_is_one_second_of_samples_within_bounds(
    group_of: GroupOf, rate: float | None, batch: int
) -> None:
    (half,) = group_of(scadles(), 1).workers
    assert half.next_batch_size(Stream(64, rate=rate), 0.0) == batch


def test_gradients_are_weighted_by_samples(group_of: GroupOf) -> None:
    """b = 96 and 32: r = 3/4 and 1/4; g = 0.75 (4, 8) + 0.25 (8, -8) = (5, 4). Σb = 128 = B, so η
    stays 0.5: (8 - 2.5, 16 - 2)."""
    group = group_of(scadles(), 2)
    push(group, 0, (4, 8), 96)
    push(group, 1, (8, -8), 32)
    assert group.server.parameters.tolist() == [5.5, 14]


def test_the_learning_rate_grows_with_the_batch(group_of: GroupOf) -> None:
    """Σb = 256, B = 128: η 0.5 becomes 1. g = (4, 8): (8 - 4, 16 - 8)."""
    group = group_of(scadles(), 2)
    push(group, 0, (4, 8), 128)
    push(group, 1, (4, 8), 128)
    assert group.server.parameters.tolist() == [4, 8]


@pytest.mark.parametrize("workers", [1, 2, 3, 5])
def test_with_equal_rates_scadles_is_ddl(group_of: GroupOf, workers: int) -> None:
    """And, without momentum and weight decay, BSP; 1e-6, as float32 sums round differently."""
    options = {"learning_rate": 0.1, "momentum": 0.9, "weight_decay": 1e-4}
    pairs: list[tuple[AlgorithmConfig, AlgorithmConfig]] = [
        (scadles(**options), ddl(**options)),
        (scadles(), Bsp(name="bsp", learning_rate=0.5)),
    ]
    for pair in pairs:
        one, other = (group_of(config, workers) for config in pair)
        rng = np.random.default_rng(7)
        for _ in range(20):
            gradients = rng.uniform(0.1, 1, (workers, 2)).tolist()
            for group in (one, other):
                for index in range(workers):
                    push(group, index, gradients[index], 64)
                for index in range(workers):
                    group.pull(index)
        np.testing.assert_allclose(one.server.parameters, other.server.parameters, rtol=1e-6)


# Data injection


def test_shared_samples_count_for_neither_weights_nor_rate_nor_epoch(group_of: GroupOf) -> None:
    """b = 96 and 32 of their own, 64 more shared with the second: r = 3/4 and 1/4 all the same, and
    Σb = B, so that η stays 0.5, and 128 of the 200 samples of an epoch are through."""
    config = scadles(alpha=0.5, beta=0.5, epoch=200, milestones=(1,), decay=0.5)
    group = group_of(config, 2)
    for index, (gradient, own, shared) in enumerate([((4, 8), 96, 0), ((8, -8), 32, 64)]):
        group.workers[index].on_samples(np.arange(own), 0.0)
        push(group, index, gradient, own + shared)
    assert group.server.parameters.tolist() == [5.5, 14]
    for index in range(2):
        group.pull(index)
        group.workers[index].on_samples(np.arange(64), 0.0)
        push(group, index, (4, 8), 128)
    assert group.server.parameters.tolist() == [3.5, 10]


def test_an_update_of_shared_samples_alone_is_refused(group_of: GroupOf) -> None:
    group = group_of(scadles(alpha=0.5, beta=0.5), 2)
    update = Update(Dense(floats(1, 1)), 0, 8, note={"injected": 8.0})
    with pytest.raises(RejectedError, match="0 samples of its own, expected at least 1"):
        group.server.push(0, update, 0.0)
    assert group.server.ready(0)


def test_a_fraction_of_the_devices_shares_a_fraction_of_its_batch() -> None:
    """ceil(0.25 * 5) = 2 devices; ceil(0.1 * 30) = 3, though floats would make it 4. floor(0.5 * 9)
    = 4 samples, floor(0.29 * 100) = 29, and floor(0.1 * 9) = 0."""
    rng = np.random.default_rng(0)
    for alpha, devices, sharers in ((0.25, 5, 2), (0.1, 30, 3), (0.01, 4, 1), (1.0, 4, 4)):
        injection = Injection(alpha)
        injection.begin(range(devices), rng)
        assert len(injection.sharers) == sharers
    for beta, batch, shared in ((0.5, 9, 4), (0.29, 100, 29), (0.1, 9, 0), (1.0, 8, 8)):
        some = chosen(np.arange(100, 100 + batch), beta, rng)
        assert len(set(some.tolist())) == shared
        assert set(some.tolist()) <= set(range(100, 100 + batch))


def shared_round(group: Any, sharers: set[int]) -> list[Reply]:
    """The replies after every device reported 8 samples of its own."""
    for index, worker in enumerate(group.workers):
        samples = np.arange(8 * index, 8 * index + 8)
        message = worker.on_samples(samples, 0.0)
        assert len(message.shared) == (4 if index in sharers else 0)
        group.tell(index, message)
    return [group.server.pull(index, 0.0) for index in range(len(group.workers))]


def test_devices_get_shared_samples_of_others_and_never_their_own(group_of: GroupOf) -> None:
    """α 0.5 of 4: 2 devices share 4 of their 8 samples each. Those two get 4, the others 8."""
    group = group_of(scadles(alpha=0.5, beta=0.5), 4)
    sharers = {i for i in range(4) if "shares" in group.server.pull(i, 0.0).note}
    assert len(sharers) == 2
    replies = shared_round(group, sharers)
    for index, reply in enumerate(replies):
        assert isinstance(reply.model, Sparse)
        own = set(range(8 * index, 8 * index + 8))
        assert reply.shared is not None
        got = set(reply.shared.tolist())
        assert not got & own
        assert len(got) == (4 if index in sharers else 8)
        group.workers[index].receive(reply, 0.0)
    assert group.workers[0].parameters.tolist() == [8, 16]  # the model is unchanged
    update = group.workers[0].step(floats(1, 1), 8 + len(replies[0].shared), 0.0)  # type: ignore[arg-type]
    assert update.note["injected"] == len(replies[0].shared)  # type: ignore[arg-type]


def test_devices_that_share_nothing_are_not_awaited(group_of: GroupOf) -> None:
    """The server waits for the workers that share, and for no others."""
    group = group_of(scadles(alpha=0.5, beta=0.5), 4)
    sharers = {i for i in range(4) if "shares" in group.server.pull(i, 0.0).note}
    (other, _) = sorted(set(range(4)) - sharers)
    group.tell(other, group.workers[other].on_samples(np.arange(8), 0.0))
    assert not group.server.ready(other)
    assert set(group.server.awaited()) == sharers
    for index in sharers:
        group.tell(index, group.workers[index].on_samples(np.arange(8), 0.0))
    assert group.server.ready(other)


def test_a_batch_too_small_to_share_of_counts_as_shared(group_of: GroupOf) -> None:
    """floor(0.05 * 8) = 0 samples, which a message live does not carry at all."""
    group = group_of(scadles(alpha=1.0, beta=0.05), 2)
    for index, worker in enumerate(group.workers):
        message = worker.on_samples(np.arange(8 * index, 8 * index + 8), 0.0)
        assert len(message.shared) == 0
        group.tell(index, replace(message, shared=None))
    assert group.server.ready(0)
    assert group.server.pull(0, 0.0).shared is None


@pytest.mark.parametrize("options", [{"alpha": 0.0, "beta": 0.5}, {"alpha": 0.5, "beta": 0.0}])
def test_sharing_is_off_if_either_option_is_zero(
    group_of: GroupOf, options: dict[str, float]
) -> None:
    group = group_of(scadles(**options), 2)
    assert group.server.pull(0, 0.0).note == {}
    assert group.workers[0].on_samples(np.arange(8), 0.0) is None


def test_a_sharer_that_is_silent_or_leaves_is_not_awaited(group_of: GroupOf) -> None:
    group = group_of(scadles(alpha=1.0, beta=0.5), 3)
    group.tell(0, group.workers[0].on_samples(np.arange(8), 0.0))
    group.tell(1, group.workers[1].on_samples(np.empty(0, np.int64), 0.0))
    assert not group.server.ready(0)
    group.server.leave(2, 0.0)
    assert group.server.ready(0)
    assert group.server.pull(0, 0.0).shared is None  # no other worker has shared


# All together


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"alpha": 0.5, "beta": 0.5},
        {"ratio": 0.1, "delta": 0.9},
        {"ratio": 0.1, "delta": 0.9, "scope": "per_tensor"},
        {"ratio": 0.1, "delta": 0.9, "decide": "majority"},
        {"alpha": 0.5, "beta": 0.5, "ratio": 0.1, "delta": 0.9, "decide": "majority"},
    ],
    ids=["plain", "injection", "compression", "of tensors", "votes", "three messages a step"],
)
def test_streaming_algorithms_keep_the_contract(options: dict[str, float]) -> None:
    findings = list(examine(scadles(**options)))
    assert len(findings) == len(CHECKS)
    assert [one for one in findings if one.problem] == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"min_batch": 9, "max_batch": 8}, "min_batch 9"),
        ({"alpha": 1.5}, "alpha"),
        ({"beta": -0.1}, "beta"),
        ({"milestones": [75]}, "milestones without an epoch"),
        ({"milestones": [75, 75], "epoch": 50000}, "increasing milestones"),
        ({"ratio": 0}, "ratio"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        scadles(**options)
