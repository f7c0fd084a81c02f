"""Classes of devices with their own waits and laws."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from testbed import Run
from testbed.values.laws import Law
from testbed.values.seeds import stream

Simulate = Callable[..., Run]

FIGURE_4 = """
name: figure-4
runtime: simulated
algorithm: asgd
model: {mlp: {hidden: [4]}}
dataset: digits
workers:
  count: 10
  think: {law: constant, mean: 990ms}
  classes:
    fast: {share: 0.3, speed: 10ms}
    medium: {share: 0.4, speed: 10ms, think: {law: constant, mean: 9.99s}}
    slow: {share: 0.3, speed: 10ms, think: {law: constant, mean: 99.99s}}
stop: {time: 500.5s}
evaluate: {every: 500s, images: 10}
"""
"""The classes of AdaComp's fourth figure: cycles of 1, 10 and 100 s, of which the step is 10 ms."""


@pytest.mark.slow
def test_the_classes_of_adacomps_figure_4_by_hand(run_simulation: Simulate) -> None:
    """Three workers push 500 times, four 50 times, three five times: 1,500, 200 and 15 of 1,715.

    All together push 3 + 0.4 + 0.03 = 3.43 times per second, so between two pushes of one worker
    there are 3.43 - 1, 34.3 - 1 and 343 - 1 of the others. Of simultaneous pushes either
    may be first, and the first cycle starts for all at once: hence the tolerance.
    """
    updates = run_simulation("one", text=FIGURE_4).updates.groupby("device_class", observed=True)
    assert updates.size().to_dict() == {"fast": 1500, "medium": 200, "slow": 15}
    staleness = updates["staleness"].mean()
    assert staleness["fast"] == pytest.approx(2.43, rel=0.02)
    assert staleness["medium"] == pytest.approx(33.3, rel=0.02)
    assert staleness["slow"] == pytest.approx(342, rel=0.02)
    assert updates["think_seconds"].mean().to_dict() == pytest.approx(
        {"fast": 0.99, "medium": 9.99, "slow": 99.99}
    )


JITTER = (
    "workers.classes.slow.speed={law: 'lognormal(1,0.5)', mean: 50ms}",
    *("algorithm={fixed-adacomm: {local_steps: 3}}", "workers.think=null"),
)


def test_the_length_of_a_step_is_drawn_from_its_law(run_simulation: Simulate) -> None:
    """Three steps per push, the same draws for any number of processes."""
    runs = [run_simulation(f"with-{n}", *JITTER, processes=n) for n in (1, 2)]
    compute = [run.updates[run.updates["worker"] == 4]["compute_seconds"] for run in runs]
    np.testing.assert_array_equal(*compute)
    draws, law = stream(3, "w4", "speed"), Law("lognormal", 1, 0.5)
    steps = [[0.05 * law.draw(draws) for _ in range(3)] for _ in compute[0]]
    assert compute[0].tolist() == pytest.approx(np.sum(steps, axis=1).tolist(), rel=1e-5)
    fast = runs[0].updates[runs[0].updates["worker"] == 0]["compute_seconds"]
    assert fast.tolist() == pytest.approx([0.03] * len(fast))
