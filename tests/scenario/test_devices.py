"""Devices that differ within a class: laws drawn once per device, tables, and the data they get."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from testbed.errors import ScenarioError
from testbed.plan.make import plan
from testbed.scenario import dump, load, load_text
from testbed.scenario.dealing import dealt
from testbed.scenario.devices import any_differs, devices, devices_text
from testbed.scenario.durations import StepPace
from testbed.scenario.per_device import Table, read_column
from testbed.scenario.schema import Scenario
from testbed.values.laws import Law
from testbed.values.seeds import stream
from testbed.values.traces import InvalidLine
from testbed.values.units import Duration, Rate

BASE = """
name: base
algorithm: asgd
model: digits-cnn
dataset: digits
runtime: simulated
workers:
  count: 4
  classes:
    near: {count: 1, speed: 10ms, link: {up: {rate: 1mbit}}}
    far: {share: 1.0, speed: SPEED, link: {up: UP, down: DOWN}}
stop: {updates: 10}
"""
TABLE = "# of three boards\nstep_ms,down,lag\n20,1mbit,10ms\n\n30,2mbit,20ms\n40,5kbit,30ms\n"
LAW = '{each: "uniform(0.5,1.5)", mean: 2mbit}'


def scenario_text(speed: str = "20ms", up: str = "{}", down: str = "{}") -> str:
    return BASE.replace("SPEED", speed).replace("UP", up).replace("DOWN", down)


@pytest.fixture
def tabled(tmp_path: Path) -> Scenario:
    def table(column: str, unit: str = "") -> str:
        return f"{{table: {{file: t.csv, column: {column}{unit}, rows: drawn}}}}"

    (tmp_path / "t.csv").write_text(TABLE)
    down = f"{{rate: {table('down')}, delay: {table('lag')}}}"
    text = scenario_text(speed=table("step_ms", ", unit: ms"), down=down)
    (tmp_path / "s.yaml").write_text(text)
    return load(tmp_path / "s.yaml")


def test_a_law_is_drawn_once_per_device_from_its_own_stream() -> None:
    speed = '{each: "lognormal(1,0.5)", mean: 50ms, law: "normal(1,0.1)"}'
    scenario = load_text(scenario_text(speed=speed, up=f"{{rate: {LAW}}}"))
    near, *far = devices(scenario)
    assert near.pace == StepPace(0.01)
    for device in far:
        node = f"w{device.worker}"
        drawn = Law("lognormal", 1, 0.5).draw(stream(0, node, "device", "speed"))
        assert device.pace == StepPace(drawn * 0.05, law=Law("normal", 1, 0.1))
        drawn = Law("uniform", 0.5, 1.5).draw(stream(0, node, "device", "up.rate"))
        assert device.link.up.rate == Rate(drawn * 2e6)
    assert len({one.link.up.rate for one in far}) == 3
    assert devices(scenario.model_copy(update={"seed": 1}))[1:] != tuple(far)
    assert [node.link and node.link.up.rate for node in plan(scenario, "run").workers] == [
        Rate(1e6),
        *(one.link.up.rate for one in far),
    ]
    assert scenario.workers.classes["far"].link.up.rate == Rate(2e6)
    assert load_text(dump(scenario)) == scenario


def test_columns_of_a_table_stay_together(tabled: Scenario) -> None:
    """Every device has a row of its own; 5 kbit is raised to the least rate, 10 kbit."""
    rows = {(0.02, 1e6, 0.01), (0.03, 2e6, 0.02), (0.04, 10e3, 0.03)}
    found = [
        (one.pace and one.pace.base_seconds, one.link.down.rate, one.link.down.delay)
        for one in devices(tabled)[1:]
    ]
    assert set(found) == rows
    orders = {devices(tabled.model_copy(update={"seed": seed})) for seed in range(4)}
    assert len(orders) > 1
    assert tabled.workers.classes["far"].mean_step(10) == pytest.approx(0.03)
    assert tabled.workers.classes["far"].link.down.delay == Duration(0.02)
    assert load_text(dump(tabled)) == tabled
    lines = devices_text(tabled).splitlines()
    assert lines[1] == "0,near,0.01,0.0,1000000.0,,,"
    assert lines[0].startswith("worker,class,step_seconds,")


def test_classes_of_equal_devices_are_as_before() -> None:
    scenario = load_text(scenario_text(speed="{base: 20ms, each: 1ms}"))
    assert not any_differs(scenario)
    assert [one.pace for one in devices(scenario)] == [StepPace(0.01), *[StepPace(0.02, 0.001)] * 3]


@pytest.mark.parametrize(
    ("text", "unit", "line", "found"),
    [
        ("", None, 0, "an empty file"),
        ("a,b\n1ms,2ms\n", None, 1, "no column step"),
        ("step,step\n1ms,2ms\n", None, 1, "more than one column step"),
        ("step\n1ms\n", None, 0, "1 rows"),
        ("step\n1ms\n7\n", None, 3, "7 in column step, without a unit"),
        ("step\n1ms\n-7\n", "ms", 3, "-7 in column step"),
        ("step\n1ms\n-7ms\n", None, 3, "-7ms in column step"),
        ("step\n0\n1\n", "ms", 2, "0 in column step"),
        ("step\nnan\n1\n", "ms", 2, "'nanms' in column step"),
        ("a,step\n1,1ms\n2\n", None, 3, "'' in column step"),
        ("step\n1mbit\n1ms\n", None, 2, "the unit 'mbit' in column step"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(
    text: str, unit: str | None, line: int, found: str
) -> None:
    table = Table(file="t.csv", column="step", unit=unit)
    with pytest.raises(InvalidLine) as refused:
        read_column(text, table, Duration, devices=2)
    assert (refused.value.line, refused.value.found) == (line, found)


def test_the_fastest_devices_get_most_samples() -> None:
    """Steps of 10, 40, 10 and 20 ms; shares of 2, 3, 9 and 5 samples."""
    shards = [np.arange(size) for size in (2, 3, 9, 5)]
    scenario = load_text(scenario_text(speed="20ms"))
    classes = {"a": ("10ms", 1), "b": ("40ms", 1), "c": ("15ms", 1), "d": ("20ms", 1)}

    def sizes(deal: dict[str, object]) -> list[int]:
        members = {name: {"count": n, "speed": speed} for name, (speed, n) in classes.items()}
        data = scenario.model_dump(by_alias=True) | {"faults": []}
        data["workers"] = {"count": 4, "classes": members, "deal": deal}
        return [len(one) for one in dealt(Scenario.model_validate(data), shards)]

    assert sizes({"by": "samples"}) == [9, 2, 5, 3]
    assert sizes({"by": "samples", "most": "slowest"}) == [2, 9, 3, 5]
    assert sorted(sizes({"by": "samples", "correlation": 0.1})) == [2, 3, 5, 9]
    assert [len(one) for one in dealt(scenario, shards)] == [2, 3, 9, 5]


def test_shares_of_equal_size_cannot_be_dealt_by_size() -> None:
    text = scenario_text().replace("  count: 4\n", "  count: 4\n  deal: {by: samples}\n")
    with pytest.raises(ScenarioError, match="shares of 3 samples each"):
        dealt(load_text(text), [np.arange(3)] * 4)
