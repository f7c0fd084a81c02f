"""ScaDLES's adaptive compression, worked by hand. Numbers are exact in float32 unless said."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from vectors import floats

from testbed.algorithms import ScaDles
from testbed.algorithms.base import Update
from testbed.algorithms.parts.adaptive_compression import LossOfNorm
from testbed.payloads import Dense, Sparse
from testbed.payloads.layout import Layout

GroupOf = Any
"""Makes some workers and a server on two parameters that begin at 8 and 16; see conftest.py."""


def scadles(**options: Any) -> ScaDles:
    plain = {"learning_rate": 0.5, "momentum": 0.0, "weight_decay": 0.0}
    return ScaDles.model_validate({"name": "scadles", **plain, **options})


def test_the_loss_of_the_norm_and_its_average() -> None:
    """g = (3, 4), Top-1 keeps 4: ρ = (25 - 16) / 25 = 0.36, and s = ρ. Then for
    g = (0, 5): ρ = 0, s = 0.9 * 0.36 = 0.324. g = 0 loses nothing."""
    loss = LossOfNorm()
    assert loss.add(floats(3, 4), Sparse(np.array([1], np.int32), floats(4))) == pytest.approx(0.36)
    assert loss.add(floats(0, 5), Sparse(np.array([1], np.int32), floats(5))) == pytest.approx(
        0.324
    )
    assert loss.add(floats(0, 0), Sparse.nothing()) == pytest.approx(0.2916)
    assert loss.rho == 0


def test_norms_of_tensors_are_added_up() -> None:
    """(3, 4), (0, 5) and (6, 8) keep 4, 5 and nothing: 5 + 5 + 10 and 4 + 5 + 0, so that
    ρ = 11/20, and squared (150 - 41) / 150."""
    gradient, kept = floats(3, 4, 0, 5, 6, 8), Sparse(np.array([1, 3], np.int32), floats(4, 5))
    assert LossOfNorm(sizes=(2, 2, 2)).add(gradient, kept) == pytest.approx(0.55)
    assert LossOfNorm().add(gradient, kept) == pytest.approx(109 / 150)


@pytest.mark.parametrize(("norm", "compressed"), [("squared", False), ("layer-sum", True)])
def test_the_norm_decides_which_device_compresses(
    group_of: GroupOf, norm: str, compressed: bool
) -> None:
    """Of (3, 4) Top-1 loses (25 - 16) / 25 = 0.36 squared and (5 - 4) / 5 = 0.2 not; δ is 0.3."""
    (update,) = voted(
        group_of(scadles(ratio=0.5, delta=0.3, norm=norm, decide="majority"), 1), [(3, 4)]
    )
    assert isinstance(update.payload, Sparse) is compressed
    assert update.note["rho"] == pytest.approx(0.2 if compressed else 0.36)


def voted(group: Any, gradients: Sequence[Sequence[float]]) -> list[Update]:
    """What each pushes after all have voted on these gradients."""
    pushed = []
    for index, gradient in enumerate(gradients):
        vote = group.workers[index].step(floats(*gradient), 64, 0.0)
        group.tell(index, vote)
        assert group.server.ready(0) is (index == len(gradients) - 1)
    for index, worker in enumerate(group.workers):
        pushed.append(worker.receive(group.server.pull(index, 0.0), 0.0))
    return pushed


def test_each_device_decides_for_itself(group_of: GroupOf) -> None:
    """δ 0.3: (3, 4) loses 0.36 and is sent, (1, 8) loses 1/65 and 8 is sent. w = (8, 16) - 0.5 *
    (1.5, 6)."""
    group = group_of(scadles(ratio=0.5, delta=0.3), 2)
    for index, gradient in enumerate([(3, 4), (1, 8)]):
        update = group.workers[index].step(floats(*gradient), 64, 0.0)
        assert isinstance(update.payload, (Dense, Sparse)[index])
        assert update.note["compressed"] == index
        group.server.push(index, update, 0.0)
    assert group.server.parameters.tolist() == [7.25, 13]


@pytest.mark.parametrize(("scope", "sent"), [("global", [2, 3]), ("per_tensor", [1, 3])])
def test_the_largest_entries_are_chosen_from_all_tensors(scope: str, sent: list[int]) -> None:
    """CR 0.5 of (1, 2) and (3, 4): the two largest of all four, or the largest of each tensor."""
    layout = Layout(("weight", "bias"), ((2,), (2,)))
    config = scadles(ratio=0.5, delta=1.0, scope=scope)
    worker = config.worker(layout, 1, rng=np.random.default_rng(0))
    update: Any = worker.step(floats(1, 2, 3, 4), 64, 0.0)
    assert update.payload.indices.tolist() == sent
    # 30 less 25, or less 20
    assert update.note["rho"] == pytest.approx(5 / 30 if scope == "global" else 10 / 30)


def test_a_majority_compresses(group_of: GroupOf) -> None:
    """CR 0.5 of two entries keeps one. (3, 4) loses 0.36, (0, 4) nothing, (1, 1) half: with δ 0.3
    one of three votes for it, and max(1, floor(3/2)) = 1 is enough. The pushes: (., 4), (., 4),
    and (1, .), the lower index. g = (1, 8)/3; η 0.5; Σb = B: w = (8 - 1/6, 16 - 8/6)."""
    group = group_of(scadles(ratio=0.5, delta=0.3, decide="majority"), 3)
    updates = voted(group, [(3, 4), (0, 4), (1, 1)])
    for update, (index, value) in zip(updates, [(1, 4), (1, 4), (0, 1)], strict=True):
        assert isinstance(update.payload, Sparse)
        assert update.payload.indices.tolist() == [index]
        assert update.payload.values.tolist() == [value]
        assert update.note["compressed"] == 1
    assert [update.note["rho"] for update in updates] == pytest.approx([0.36, 0, 0.5])
    for index, update in enumerate(updates):
        group.server.push(index, update, 0.0)
    np.testing.assert_allclose(group.server.parameters, [8 - 1 / 6, 16 - 8 / 6], rtol=1e-6)


def test_without_enough_votes_everything_is_sent(group_of: GroupOf) -> None:
    """δ 0.3: (3, 4) loses 0.36 and (1, 1) half. One vote of two would be needed. w = (8, 16) - 0.5
    (2, 2.5)."""
    group = group_of(scadles(ratio=0.5, delta=0.3, decide="majority"), 2)
    updates = voted(group, [(3, 4), (1, 1)])
    for index, update in enumerate(updates):
        assert isinstance(update.payload, Dense)
        assert update.note["compressed"] == 0
        group.server.push(index, update, 0.0)
    assert group.server.parameters.tolist() == [7, 14.75]


def test_a_gradient_is_never_a_vote(group_of: GroupOf) -> None:
    """w0 votes, w1 pushes at once and has no say. The mean of (2, 4) and (6, 4): 8 - 2 and 16 - 2.
    A note of ``shares`` on a gradient likewise."""
    for note in ({"vote": 1.0}, {"shares": 1.0}):
        group = group_of(scadles(ratio=0.5, delta=0.0, decide="majority"), 2)
        group.tell(0, group.workers[0].step(floats(2, 4), 64, 0.0))
        assert group.server.awaited() == {1}
        forged = Update(Dense(floats(6, 4)), 0, 64, note=note)
        assert group.server.push(1, forged, 0.0) == ()
        update = group.workers[0].receive(group.server.pull(0, 0.0), 0.0)
        applied = group.server.push(0, update, 0.0)
        assert [one.worker for one in applied] == [0, 1]
        assert group.server.parameters.tolist() == [6, 14]


@pytest.mark.parametrize(
    ("gradient", "delta", "compressed"),
    [
        ((0, 0), 0.0, True),  # nothing to lose
        ((0, 5), 0.0, True),  # nothing is lost
        ((1, 1), 0.0, False),
        ((1, 1), 1.0, True),  # δ >= 1 always compresses
        ((1, 1), 0.5, True),  # s <= δ
    ],
)
def test_a_single_device_needs_its_own_vote(
    group_of: GroupOf, gradient: tuple[float, float], delta: float, compressed: bool
) -> None:
    """floor(1/2) = 0 votes would always be reached: it needs 1."""
    (update,) = voted(group_of(scadles(ratio=0.5, delta=delta, decide="majority"), 1), [gradient])
    assert isinstance(update.payload, Sparse if compressed else Dense)


def test_votes_of_silent_or_departed_devices_are_not_awaited(group_of: GroupOf) -> None:
    group = group_of(scadles(ratio=0.5, delta=1.0, decide="majority"), 3)
    group.tell(0, group.workers[0].step(floats(1, 1), 64, 0.0))
    assert set(group.server.awaited()) == {1, 2}
    group.tell(1, group.workers[1].on_samples(np.empty(0, np.int64), 0.0))
    assert set(group.server.awaited()) == {2}
    group.server.leave(2, 0.0)
    assert group.server.ready(0)
    update = group.workers[0].receive(group.server.pull(0, 0.0), 0.0)
    assert len(group.server.push(0, update, 0.0)) == 1
    assert group.server.ready(1)
