"""Links that follow traces, in a scenario."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.plan.make import plan
from testbed.scenario import dump, load, load_text
from testbed.values.units import Duration, Rate

BASE = """
name: base
algorithm: asgd
model: digits-cnn
dataset: digits
workers:
  count: 2
  classes:
    all: {link: {up: {rate: {trace: rate.csv}}, down: {delay: {trace: delay.csv, then: hold}}}}
stop: {updates: 10}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "base.yaml").write_text(BASE)
    rates = "time_seconds,bits_per_second\n0,1000000\n3,0\n4,0\n"
    (tmp_path / "inner" / "rate.csv").write_text(rates)
    (tmp_path / "inner" / "delay.csv").write_text("time_seconds,delay_seconds\n0,0.02\n8,0.06\n")
    (tmp_path / "above.yaml").write_text("extends: inner/base.yaml\nname: above\n")
    return tmp_path


def test_a_trace_is_shown_with_its_mean(folder: Path) -> None:
    """Three of four seconds 1 mbit, one 10 kbit, the least; 20 ms until the last value is held."""
    scenario = load(folder / "inner" / "base.yaml")
    link = scenario.workers.classes["all"].link
    assert link.up.rate == Rate((3 * 1e6 + 10e3) / 4)
    assert link.down.delay == Duration(0.02)
    assert load_text(dump(scenario)) == scenario


def test_a_trace_of_a_base_is_relative_to_the_base(folder: Path) -> None:
    link = load(folder / "above.yaml").workers.classes["all"].link
    assert link.up.rate_trace is not None
    assert link.up.rate_trace.trace == "inner/rate.csv"


def test_offloads_are_off_from_the_start_if_a_fault_needs_that(folder: Path) -> None:
    link = "{at: {time: 3s}, workers: [w1], up: {rate: 1mbit, delay: 20ms}}"
    text = BASE.replace("rate: {trace: rate.csv}", "rate: 2mbit")
    text = text.replace("delay: {trace: delay.csv, then: hold}", "rate: 2mbit")
    assert plan(load_text(text), "run").network.offload == "auto"
    assert plan(load_text(f"{text}faults: [link: {link}]\n"), "run").network.offload == "off"
