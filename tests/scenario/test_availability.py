"""Presence drawn for each device, and that of a workload's nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.errors import ScenarioError
from testbed.plan.workload import plan_workload
from testbed.run.prepare_workload import with_files
from testbed.scenario import dump, load_text
from testbed.scenario.availability import availabilities
from testbed.scenario.load_workload import load_any
from testbed.scenario.own_code import names_of
from testbed.scenario.workload import Workload
from testbed.scenario.workload_availability import node_availabilities

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


PHONES = """
name: phones
seed: 5
workload:
  server: {command: [serve]}
  phone:
    command: [ask]
    count: 3
    availability: {trace: phones.csv}
    when_absent: freeze
    classes: {plain: {count: 2}, drawn: {count: 1, availability: {present: 30s, absent: 10s}}}
  tablet: {command: [ask], availability: {trace: phones.csv, offset: drawn}}
"""
DEVICES = """device,time_seconds,available
a,0,0
a,10,1
b,0,1
b,20,1
c,0,1
c,30,0
"""


def test_nodes_of_a_workload_follow_devices_of_their_own(tmp_path: Path) -> None:
    """Three nodes follow the same file, in two programs; the fourth one has drawn periods."""
    (tmp_path / "phones.csv").write_text(DEVICES)
    (tmp_path / "s.yaml").write_text(PHONES)
    workload = load_any(tmp_path / "s.yaml")
    assert isinstance(workload, Workload)
    found = node_availabilities(workload, lambda name: tmp_path / name)
    assert [(one.worker, one.stays) for one in found] == [
        *((1, True), (2, True), (3, True), (4, False)),
    ]
    *recorded, drawn = (found[0], found[1], found[3], found[2])
    assert {one.trace.end for one in recorded} == {10, 20, 30}
    assert drawn.trace.end == pytest.approx(100 * 40)
    assert [one.when_absent for one in plan_workload(workload, "r").nodes] == [
        *(None, "freeze", "freeze", "freeze", "kill"),
    ]
    own, copied = with_files(workload, tmp_path)
    assert copied == (tmp_path / "phones.csv",)
    assert list(names_of(own).values()) == ["custom/phones.csv"] * 2
    assert node_availabilities(own, lambda name: tmp_path / Path(name).name) == found


def test_a_recording_is_relative_to_the_file_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "phones.csv").write_text(DEVICES)
    (tmp_path / "base" / "s.yaml").write_text(PHONES)
    (tmp_path / "more.yaml").write_text("extends: base/s.yaml\nname: more\n")
    workload = load_any(tmp_path / "more.yaml")
    assert isinstance(workload, Workload)
    assert set(names_of(workload).values()) == {"base/phones.csv"}
