"""Presence drawn for each device."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.errors import ScenarioError
from testbed.scenario import dump, load_text
from testbed.scenario.availability import availabilities

BASE = """
name: base
algorithm: asgd
model: digits-cnn
dataset: digits
runtime: RUNTIME
workers: {count: 3, availability: PRESENCE, classes: {all: {speed: 20ms}}}
stop: {updates: 10}
"""


def presence(text: str, runtime: str = "simulated") -> str:
    return BASE.replace("PRESENCE", text).replace("RUNTIME", runtime)


def test_periods_alternate_from_a_start_of_each_worker() -> None:
    scenario = load_text(presence("{present: 30s, absent: {law: constant, mean: 10s}}"))
    found = availabilities(scenario, Path)
    assert len({one.offset for one in found}) == 3
    for one in found:
        assert one.trace.end == pytest.approx(100 * 40)
        assert one.trace.times[:3] == pytest.approx((0, 30, 40))
        assert one.trace.values[:2] == (1.0, 0.0)
        assert one.returns
    assert availabilities(load_text(dump(scenario)), Path) == found


def test_the_mean_of_a_device_is_drawn_once() -> None:
    each = '{each: "uniform(0.5,1.5)", mean: 10s}'
    found = availabilities(load_text(presence(f"{{present: {each}, absent: 1s}}")), Path)
    for one in found:
        first = one.trace.times[1]
        assert 5 <= first <= 15
        assert one.trace.times[3] - one.trace.times[2] == pytest.approx(first)
    assert len({one.trace.times[1] for one in found}) == 3


def test_a_container_cannot_return(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(presence("{present: 30s, absent: 1s}", "docker"))
    from testbed.scenario import load

    with pytest.raises(ScenarioError, match="which joins again"):
        load(tmp_path / "s.yaml")


def test_a_misspelt_period_is_named() -> None:
    with pytest.raises(ScenarioError, match=r"workers.availability.abscent: found an unknown key"):
        load_text(presence("{present: 30s, abscent: 1s}"))
