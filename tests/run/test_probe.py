from __future__ import annotations

import pytest

from testbed.plan.make import plan
from testbed.run.probe import ClassProbe, batches, shaped_links
from testbed.scenario import load_text
from testbed.values.topology import Direction
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


LINES = """\
name: lines
algorithm: asgd
model: digits-cnn
dataset: digits
workers:
  count: 5
  classes:
    vdsl: {count: 1, link: {up: {rate: 10mbit}, down: {rate: 50mbit}}}
    adsl: {count: 1, link: {up: {rate: 1mbit}, down: {rate: 8mbit}}}
    radio: {count: 1, link: {up: {rate: 2mbit}, down: {rate: 12mbit}}}
    fibre: {count: 1, link: {up: {rate: 1gbit}}}
    far: {count: 1, link: {up: {delay: 30ms}}}
stop: {updates: 10}
"""


def found(up: Direction, down: Direction) -> ClassProbe:
    return ClassProbe("class far", up, down, None, None, None, 16, 0.1, 0.1)


def test_only_classes_with_shaped_links_are_probed() -> None:
    (far,) = shaped_links(plan(load_text(SCENARIO), "r"))
    assert far.owner == "class far"
    assert far.link.up == Direction(rate=Rate(1e6), delay=Duration(0.03))


def test_fast_links_are_probed_one_by_one_after_the_slow_ones() -> None:
    links = shaped_links(plan(load_text(LINES), "r"))

    def filled(cpus: int) -> list[list[str]]:
        return [[one.name for one in batch] for batch in batches(links, cpus=cpus)]

    # 0, 8 and 12 mbit are 20 together; 50 more are above 40, and so is a gigabit alone.
    assert filled(1) == [["far", "adsl", "radio"], ["vdsl"], ["fibre"]]
    # 70 of the 80 that two CPUs fill, which are the most.
    assert filled(2) == filled(64) == [["far", "adsl", "radio", "vdsl"], ["fibre"]]


def test_the_expected_round_trip_is_the_sum_of_both_medians() -> None:
    plain = found(Direction(delay=Duration(0.03)), Direction(delay=Duration(0.02)))
    assert plain.expected_round_trip_seconds == pytest.approx(0.05)
    assert plain.round_trip_error_seconds == 0
    skewed = found(
        Direction(delay=Duration(0.03), jitter=Duration(0.004), distribution="pareto"),
        Direction(delay=Duration(0.02), jitter=Duration(0.003)),
    )
    # A pareto law's median lies about 0.36 deviations below its mean.
    assert skewed.expected_round_trip_seconds == pytest.approx(0.05 - 0.36 * 0.004, abs=2e-4)
    # 5 ms of both together, 16 round trips: 1.2533 * 5 / 4
    assert skewed.round_trip_error_seconds == pytest.approx(1.2533 * 0.005 / 4)
