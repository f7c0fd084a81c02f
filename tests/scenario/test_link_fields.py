"""Fields of a link that must be consistent."""

from __future__ import annotations

import pytest

from testbed.errors import ScenarioError
from testbed.network.qdiscs import Netem, qdiscs_of
from testbed.scenario import load_text
from testbed.scenario.direction import Link
from testbed.scenario.links import link_spec
from testbed.simulation.model import paths
from testbed.values.topology import Direction, LinkSpec
from testbed.values.units import Duration, Rate

TEXT = """\
name: linked
algorithm: asgd
model: digits-cnn
dataset: digits
workers:
  count: 2
  classes:
    far: {link: {up: {UP}}}
stop: {updates: 1}
time_scale: 2
"""


@pytest.mark.parametrize(
    ("up", "message"),
    [
        ("delay: 5ms, jitter: 6ms", "found a jitter of 6ms, expected at most the delay, 5ms"),
        ("delay: 5ms, distribution: pareto", "found a distribution without a jitter"),
        ("loss_correlation: 0.5", "found a loss_correlation without a loss"),
        ("loss: 0.1, loss_correlation: 1.0", "loss_correlation"),
        ("loss: 10%", "expected a number of at least 0 and below 1. Write 0.1"),
        ("rate: 3000B", "expected bits per second, like 24kbit for 3000B"),
        ("rate: 1mbit, queue: 3000B", "takes to drain, like 100ms: 3000B at 1mbit drains in 24ms"),
        ("rate: 1mbit, buffer: 3KB", "Did you mean queue?"),
        ("delay: 5ms, jitter: 1ms, distribution: cauchy", "normal"),
    ],
)
def test_inconsistent_fields_are_refused(up: str, message: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        load_text(TEXT.replace("UP", up))
    assert message in str(refused.value)
    assert "workers.classes.far.link.up" in str(refused.value)


def test_laws_and_shares_are_the_same_in_emulated_and_in_real_time() -> None:
    up = "rate: 1mbit, delay: 40ms, jitter: 8ms, distribution: uniform, loss: 0.1"
    scenario = load_text(TEXT.replace("UP", f"{up}, loss_correlation: 0.2"))
    link = scenario.workers.classes["far"].link
    spec = link_spec(link, address="", mac="", time_scale=scenario.time_scale, seed=3)
    assert spec.seed == 3
    assert spec.up == Direction(
        rate=Rate(2e6),
        delay=Duration(0.02),
        jitter=Duration(0.004),
        loss=0.1,
        distribution="uniform",
        loss_correlation=0.2,
    )


def test_a_shape_in_real_time_converts_back_to_the_direction() -> None:
    fields = "rate: 1mbit, delay: 20ms, jitter: 4ms, distribution: pareto, queue: 200ms"
    for up in (fields, f"{fields}, loss: 0.01, loss_correlation: 0.5", "delay: 1ms", ""):
        scenario = load_text(TEXT.replace("{UP}", f"{{{up}}}"))
        direction = scenario.workers.classes["far"].link.up
        there_and_back = dict(direction.scaled(3.7).scaled(1 / 3.7))
        assert there_and_back == pytest.approx(
            {name: value for name, value in direction if name in there_and_back}
        )


def test_delay_jitter_and_loss_may_all_be_zero() -> None:
    """The baseline of a sweep: the link is a plain rate, without netem, live and simulated."""
    zeros = "rate: 1mbit, delay: 0ms, jitter: 0ms, distribution: pareto"
    text = TEXT.replace("UP", f"{zeros}, loss: 0, loss_correlation: 0.5")
    link = load_text(text).workers.classes["far"].link
    spec = link_spec(link, address="", mac="", time_scale=2.0)
    assert qdiscs_of(spec) == qdiscs_of(LinkSpec("", "", up=Direction(rate=Rate(2e6))))
    assert load_text(TEXT.replace("UP", "jitter: 0s")).workers.classes["far"].link.up.delay is None
    up, _ = paths(link, Link())
    hop = up.hops[0]
    assert (hop.delay_seconds, hop.jitter_seconds, up.loss_ratio) == (0.0, 0.0, 0.0)


def test_a_correlation_without_loss_is_not_sent_to_the_kernel() -> None:
    text = TEXT.replace("UP", "delay: 5ms, loss: 0.0, loss_correlation: 0.5")
    spec = link_spec(load_text(text).workers.classes["far"].link, address="", mac="", time_scale=1)
    up, _ = qdiscs_of(spec)
    assert isinstance(up, Netem)
    assert (up.loss, up.loss_correlation) == (0.0, 0.0)


@pytest.mark.parametrize("mtu", ["575", "9001", "1.5kB", "true"])
def test_an_impossible_mtu_is_refused_with_its_line(mtu: str) -> None:
    text = TEXT.replace("{up: {UP}}", f"{{mtu: {mtu}}}")
    with pytest.raises(ScenarioError) as error:
        load_text(text)
    expected = "expected a whole number of at least 576 and at most 9,000"
    assert "8: workers.classes.far.link.mtu: found" in str(error.value)
    assert str(error.value).endswith(expected)


def test_a_queue_holds_two_frames_of_the_mtu() -> None:
    text = TEXT.replace("{up: {UP}}", "{mtu: MTU, up: {rate: 1mbit, queue: 40ms}}")
    assert load_text(text.replace("MTU", "1500")).workers.classes["far"].link.mtu == 1500
    with pytest.raises(ScenarioError, match=r"5000 bytes, less than two frames \(18028 bytes"):
        load_text(text.replace("MTU", "9000"))


def test_the_mtu_of_a_link_is_not_scaled() -> None:
    link = Link(mtu=1280, up=Direction(rate=Rate(1e6)).model_dump())
    assert link_spec(link, address="", mac="", time_scale=2.0).mtu == 1280
