"""Comp-ASGD, worked by hand."""

from typing import Literal

import numpy as np
import pytest
from vectors import floats

from testbed.algorithms import CompAsgd
from testbed.algorithms.base import Applied, Update
from testbed.payloads import Sparse
from testbed.payloads.layout import Layout

RNG = np.random.default_rng(0)
LAYOUT = Layout(("weight", "bias"), ((2, 2), (2,)))
ALICE, BOB = 0, 1


def pushed(config: CompAsgd, *gradient: float, seed: int = 0) -> Sparse:
    """The update that a worker sends for a gradient."""
    worker = config.worker(LAYOUT, 1, rng=np.random.default_rng(seed))
    update = worker.step(floats(*gradient), 10, 0.0)
    assert update is not None
    assert isinstance(update.payload, Sparse)
    return update.payload


@pytest.mark.parametrize(
    ("scope", "ratio", "indices"),
    [
        ("global", 0.5, [0, 1, 3]),  # 3 of 6
        ("per_tensor", 0.5, [0, 1, 5]),  # 2 of 4 and 1 of 2
        ("global", 0.01, [1]),  # at least one
        ("per_tensor", 0.01, [1, 5]),  # at least one of each
        ("global", 1.0, [0, 1, 2, 3, 5]),  # but never a zero
    ],
)
def test_the_largest_of_the_model_or_of_each_tensor(
    scope: Literal["global", "per_tensor"], ratio: float, indices: list[int]
) -> None:
    config = CompAsgd(name="comp-asgd", ratio=ratio, scope=scope)
    update = pushed(config, 4, -8, 1, -4, 0, 0.5)
    assert update.indices.tolist() == indices
    assert update.values.tolist() == [[4, -8, 1, -4, 0, 0.5][index] for index in indices]


def test_the_largest_of_the_model_is_the_default() -> None:
    config = CompAsgd(name="comp-asgd")
    assert (config.select, config.scope) == ("largest", "global")
    assert (config.learning_rate, config.ratio) == (0.1, 0.01)


@pytest.mark.parametrize(("scope", "counts"), [("global", (3,)), ("per_tensor", (2, 1))])
def test_a_random_choice_keeps_its_quotas(
    scope: Literal["global", "per_tensor"], counts: tuple[int, ...]
) -> None:
    config = CompAsgd(name="comp-asgd", ratio=0.5, select="random", scope=scope)
    seen = set()
    for seed in range(30):
        indices = pushed(config, 1, 2, 3, 4, 5, 6, seed=seed).indices
        assert indices.size == sum(counts)
        if scope == "per_tensor":
            assert ((indices < 4).sum(), (indices >= 4).sum()) == counts
        seen.update(indices.tolist())
    assert seen == set(range(6))


def test_a_random_choice_changes_from_step_to_step() -> None:
    config = CompAsgd(name="comp-asgd", ratio=0.5, select="random")
    worker = config.worker(LAYOUT, 1, rng=np.random.default_rng(0))
    choices = set()
    for _ in range(20):
        update = worker.step(floats(1, 2, 3, 4, 5, 6), 10, 0.0)
        assert update is not None
        assert isinstance(update.payload, Sparse)
        choices.add(tuple(update.payload.indices.tolist()))
    assert len(choices) > 5


def test_the_staleness_is_that_of_the_whole_update() -> None:
    """Unlike AdaComp's: no worker touched parameter 5, yet its step is halved.

    clock  who    sends                   sigma  rate   parameters afterwards
                                                        1     1   1   1   1   1
    0      alice  {0: 2} at version 0     0      0.5    0     1   1   1   1   1
    1      alice  {0: 2} at version 0     1      0.5    -1    1   1   1   1   1
    2      bob    {0: 2, 5: 4} at 0       2      0.25   -1.5  1   1   1   1   0
    3      bob    nothing at version 1    2      -      the same
    """
    config = CompAsgd(name="comp-asgd", learning_rate=0.5)
    half = config.server(LAYOUT, 2, parameters=np.ones(6, np.float32), rng=RNG)

    def push(worker: int, version: int, entries: dict[int, float]) -> Applied:
        indices = np.array(list(entries), np.int32)
        payload = Sparse(indices, floats(*entries.values()))
        (applied,) = half.push(worker, Update(payload, version, samples=10), 0.0)
        return applied

    assert push(ALICE, 0, {0: 2}) == Applied(ALICE, 0, 0, sigma_mean=0, sigma_max=0, step_scale=1)
    assert push(ALICE, 0, {0: 2}) == Applied(ALICE, 1, 1, sigma_mean=1, sigma_max=1, step_scale=1)
    assert push(BOB, 0, {0: 2, 5: 4}) == Applied(
        BOB, 2, 2, sigma_mean=2, sigma_max=2, step_scale=0.5
    )
    assert half.parameters.tolist() == [-1.5, 1, 1, 1, 1, 0]
    assert push(BOB, 1, {}) == Applied(BOB, 3, 2, sigma_mean=0, sigma_max=0, step_scale=1)
    assert half.parameters.tolist() == [-1.5, 1, 1, 1, 1, 0]
    assert half.version == 4
