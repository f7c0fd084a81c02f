"""Profiles of devices and links."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.errors import ScenarioError
from testbed.scenario import dump, load, load_text
from testbed.scenario.costs import builtin_cost, with_cost
from testbed.scenario.devices import devices
from testbed.scenario.durations import ModelCost, ProfileTime, StepPace
from testbed.scenario.profiles import device_profiles, link_profiles
from testbed.scenario.schema import Scenario
from testbed.studies.study import identity
from testbed.values.units import Duration, Rate

BASE = """
name: base
algorithm: asgd
model: digits-cnn
dataset: digits
runtime: simulated
workers: {count: 3, classes: {all: {speed: SPEED, link: LINK}}}
stop: {updates: 10}
"""


def scenario_text(speed: str = "{profile: raspberry-pi-4}", link: str = "{}") -> str:
    return BASE.replace("SPEED", speed).replace("LINK", link)


def test_the_documentation_has_the_numbers_of_every_link() -> None:
    document = (Path(__file__).parents[2] / "docs/devices.md").read_text(encoding="utf-8")
    for name, one in link_profiles().items():
        trip = "none" if one.rtt_ms is None else f"{one.rtt_ms:g}"
        numbers = f"{one.up_mbit:g} | {one.down_mbit:g} | {trip} | {one.date[:4]}"
        assert f"| `{name}` | {numbers} |" in document


def test_every_profile_has_a_source_and_a_date() -> None:
    found = [*device_profiles().values(), *link_profiles().values()]
    assert len(found) > 20
    for one in found:
        assert len(one.source) > 10
        assert one.date[:2] == "20"
        assert one.note


def test_inference_is_counted_operations_over_a_measured_time() -> None:
    """ResNet-18 has 1.814 GMAC: 3.628 GFLOP in 282.03 ms are 12.86 GFLOP/s."""
    inferences = [one for one in device_profiles().values() if one.note.startswith("inference")]
    assert len(inferences) == 6
    for one in inferences:
        milliseconds = float(one.source.split("ResNet-18 in ")[1].removesuffix(" ms"))
        assert one.gflops == pytest.approx(3628.147 / milliseconds, rel=5e-4)


def test_step_times_follow_from_device_and_model() -> None:
    """2e6 operations a sample at a tenth of 4e9 a second; 12 bytes a parameter at 6e9 a second."""
    cost = ModelCost(flops=2e6, parameters=1000)
    speed = ProfileTime(
        profile="x", efficiency=0.1, gflops=4.0, memory_gb_per_second=6.0, cost=cost
    )
    pace = speed.pace()
    assert pace is not None
    assert pace.sample_seconds == pytest.approx(5e-3)
    assert pace.base_seconds == pytest.approx(2e-6)
    assert speed.pace(2.0) == StepPace(2 * pace.base_seconds, 2 * pace.sample_seconds)
    assert speed.model_copy(update={"cost": None}).pace() is None


def test_a_larger_model_takes_longer_on_the_same_device() -> None:
    def step(model: str) -> float:
        text = scenario_text().replace("model: digits-cnn", f"model: {model}")
        scenario = load_text(text)
        pace = devices(with_cost(scenario, builtin_cost(scenario)))[0].pace
        assert pace is not None
        return pace.mean(10)

    small, large = step("{mlp: {hidden: [64]}}"), step("{mlp: {hidden: [128]}}")
    assert large == pytest.approx(2 * small, rel=0.05)


def test_devices_of_a_profile_differ_by_a_law() -> None:
    speed = '{profile: raspberry-pi-4, each: "uniform(0.5,1.5)"}'
    scenario = with_cost(load_text(scenario_text(speed)), ModelCost(flops=1e6, parameters=10))
    paces = [one.pace.sample_seconds for one in devices(scenario) if one.pace]
    assert len(set(paces)) == 3
    for seconds in paces:
        assert 0.5 <= seconds / (1e6 / 11.889e9) <= 1.5
    assert load_text(dump(scenario)) == scenario


def test_the_cost_is_no_part_of_the_identity_of_a_run() -> None:
    scenario = load_text(scenario_text())
    counted = with_cost(scenario, ModelCost(flops=1e6, parameters=10))
    assert identity(counted, {}) == identity(scenario, {})


def test_a_link_profile_applies_where_nothing_is_given() -> None:
    link = load_text(scenario_text("1ms", "{profile: lte-uk, up: {rate: 1mbit, loss: 0.01}}"))
    own = link.workers.classes["all"].link
    assert (own.up.rate, own.up.delay, own.up.loss) == (Rate(1e6), Duration(0.0105), 0.01)
    assert (own.down.rate, own.down.delay) == (Rate(29.5e6), Duration(0.0105))
    each = '{profile: lte-uk, up: {rate: {each: "uniform(0.5,1.5)", mean: 2mbit}}}'
    drawn = load_text(scenario_text("1ms", each)).workers.classes["all"].link.up
    assert drawn.rate == Rate(2e6)
    assert drawn.rate_each is not None


def _with_file(folder: Path, content: str) -> Scenario:
    (folder / "mine.yaml").write_text(content)
    (folder / "s.yaml").write_text(scenario_text("{profile: mine.yaml}"))
    return load(folder / "s.yaml")


def test_a_device_can_be_a_file(tmp_path: Path) -> None:
    text = "gflops: 2.5\nsource: my desk\ndate: '2026-01-31'\n"
    speed = _with_file(tmp_path, text).workers.classes["all"].speed
    assert isinstance(speed, ProfileTime)
    assert (speed.gflops, speed.memory_gb_per_second) == (2.5, None)
    with pytest.raises(ScenarioError, match=r"speed.profile: found no device profile \(gflops"):
        _with_file(tmp_path, text.replace("2.5", "-2"))
    with pytest.raises(ScenarioError, match=r"no device profile"):
        _with_file(tmp_path, "[")
    (tmp_path / "s.yaml").write_text(scenario_text("{profile: ./missing.yaml}"))
    with pytest.raises(ScenarioError, match=r"missing\.yaml: No such file"):
        load(tmp_path / "s.yaml")
