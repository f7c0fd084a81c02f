from __future__ import annotations

from statistics import fmean, pstdev
from typing import get_args

import pytest

from testbed.network.jitter import SCALE, table
from testbed.values.topology import Distribution


@pytest.mark.parametrize("law", get_args(Distribution))
def test_every_law_has_mean_0_and_deviation_1(law: Distribution) -> None:
    deviations = [entry / SCALE for entry in table(law)]
    assert fmean(deviations) == pytest.approx(0, abs=1e-3)
    assert pstdev(deviations) == pytest.approx(1, abs=1e-3)
    assert min(deviations) >= -4
    assert max(deviations) < 4
    assert deviations == sorted(deviations)


@pytest.mark.parametrize(
    ("law", "lowest", "median", "upper"),
    [
        ("uniform", -1.732, 0.0, 1.558),  # the bounds are the square root of 3
        ("normal", -3.67, 0.0, 1.645),
    ],
)
def test_the_laws_quantiles(law: Distribution, lowest: float, median: float, upper: float) -> None:
    entries = table(law)
    found = [entries[0], entries[len(entries) // 2], entries[round(len(entries) * 0.95)]]
    assert [entry / SCALE for entry in found] == pytest.approx([lowest, median, upper], abs=0.01)


def test_pareto_is_skewed_to_long_delays() -> None:
    entries = table("pareto")
    assert entries[len(entries) // 2] < 0
    assert -entries[0] < entries[-1] / 3
