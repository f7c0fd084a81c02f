from __future__ import annotations

import pytest

from testbed.plan.make import plan
from testbed.run.probe import ClassProbe, shaped_links
from testbed.scenario import load_text
from testbed.topology import Shape
from testbed.values.units import Duration, Rate

SCENARIO = """\
name: probed
algorithm: asgd
model: digits-cnn
dataset: digits
workers:
  count: 6
  classes:
    near: {share: 0.5}
    far: {share: 0.5, link: {up: {rate: 1mbit, delay: 30ms}}}
stop: {updates: 10}
"""


def found(up: Shape, down: Shape) -> ClassProbe:
    return ClassProbe("far", up, down, None, None, None, 16, 0.1, 0.1)


def test_only_classes_with_a_shape_are_probed() -> None:
    links = shaped_links(plan(load_text(SCENARIO), "r"))
    assert list(links) == ["far"]
    assert links["far"].up == Shape(rate=Rate(1e6), delay=Duration(0.03))


def test_the_expected_round_trip_is_the_medians_of_both_ways() -> None:
    plain = found(Shape(delay=Duration(0.03)), Shape(delay=Duration(0.02)))
    assert plain.expected_round_trip_seconds == pytest.approx(0.05)
    assert plain.round_trip_error_seconds == 0
    skewed = found(
        Shape(delay=Duration(0.03), jitter=Duration(0.004), distribution="pareto"),
        Shape(delay=Duration(0.02), jitter=Duration(0.003)),
    )
    # A pareto law's median lies about 0.36 deviations below its mean.
    assert skewed.expected_round_trip_seconds == pytest.approx(0.05 - 0.36 * 0.004, abs=2e-4)
    # 5 ms of both together, 16 round trips: 1.2533 * 5 / 4
    assert skewed.round_trip_error_seconds == pytest.approx(1.2533 * 0.005 / 4)
