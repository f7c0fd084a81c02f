"""The summary of what a simulation models, available before the run."""

from __future__ import annotations

import pytest

from testbed.errors import HostError
from testbed.scenario import load_text
from testbed.simulation.outline import (
    LEFT_OUT,
    ClassOutline,
    actor_bytes,
    outline,
    require_memory,
)

TEXT = """
name: outlined
runtime: simulated
algorithm: asgd
model: digits-cnn
dataset: digits
ps: {link: {down: {rate: 10mbit}}}
workers:
  count: 10
  think: {law: exponential, mean: 90ms}
  classes:
    fast: {share: 0.6, speed: 10ms}
    slow:
      share: 0.4
      speed: 310ms
      link:
        up: {rate: 1mbit, delay: 20ms, jitter: 2ms, distribution: pareto, loss: 0.015}
        down: {delay: 40ms}
stop: {updates: 10}
"""

LAW = "exponential x 90ms"


def test_classes_links_and_pace() -> None:
    made = outline(load_text(TEXT), parameters=None, processes=2)
    assert made.classes == (
        ClassOutline("fast", 6, 0.01, LAW, up="no limits, no delay", down="no limits, no delay"),
        ClassOutline("slow", 4, 0.31, LAW, up="1mbit, 20ms ± 2ms pareto, 1.5 % lost", down="40ms"),
    )
    assert (made.ps_up, made.ps_down) == ("no limits, no delay", "10mbit")
    assert made.updates_per_second == 70.0  # six every 0.1 s and four every 0.4 s
    assert made.ps_service == "no time"
    assert made.memory_bytes is None
    assert made.gradients == "2 processes, each on a CPU"
    assert made.left_out == LEFT_OUT


def test_the_device_of_the_gradients() -> None:
    text = TEXT.replace("runtime: simulated", "runtime: {simulated: {device: cuda}}")
    made = outline(load_text(text), parameters=None, processes=16)
    assert made.gradients == "16 processes, sharing this host's GPU (cuda)"


def test_a_ray_pool_has_the_workers_models_on_its_nodes() -> None:
    pool = "runtime: {simulated: {pool: {ray: {processes: 3}}}}"
    scenario = load_text(TEXT.replace("runtime: simulated", pool))
    made = outline(scenario, parameters=1_000_000, processes=16)
    assert made.gradients == "3 processes of the Ray cluster at auto"
    assert made.memory_bytes == 80_000_000 + 350_000_000  # two vectors for each of 10 workers
    # Of 10 workers, the first of 3 actors has 4: two vectors of 4 MB each, and the imports.
    assert actor_bytes(10, 1_000_000, processes=3) == 32_000_000 + 350_000_000
    # Of 8 gradients at once, 24 vectors to compute them, and 16 in a message and its answer.
    eight = actor_bytes(10, 1_000_000, processes=3, at_once=8)
    assert eight == 32_000_000 + 350_000_000 + 40 * 4_000_000


def test_memory_grows_with_workers_and_processes() -> None:
    scenario = load_text(TEXT)
    # Three vectors of a million floats for each of 10 workers, 350 MB the clock, 100 each process.
    made = outline(scenario, parameters=1_000_000, processes=3)
    assert made.memory_bytes == 120_000_000 + 350_000_000 + 3 * 100_000_000


def test_a_simulation_that_does_not_fit_is_refused() -> None:
    # Each of 10 workers needs 12 MB, the clock 350 MB and two processes 100 MB each: 670 MB.
    require_memory(10, 1_000_000, processes=2, available=670_000_000)
    with pytest.raises(HostError, match=r"about 670 MB needed, 600 MB available") as refused:
        require_memory(10, 1_000_000, processes=2, available=600_000_000)
    assert "--workers 4" in refused.value.hint  # (600 - 550) / 12


def test_a_server_that_takes_time_sets_the_pace() -> None:
    text = TEXT.replace("ps: {", "ps: {service: 25ms, ")
    made = outline(load_text(text), parameters=None, processes=2)
    assert made.ps_service == "25ms per request, one at a time"
    assert made.updates_per_second == 40.0


def test_without_think_time() -> None:
    made = outline(load_text(TEXT.replace("  think:", "  #")), parameters=None, processes=1)
    assert [one.think for one in made.classes] == ["none", "none"]
    assert made.updates_per_second == 6 / 0.01 + 4 / 0.31


def test_a_class_with_its_own_law() -> None:
    """Six workers every 0.1 s, and four every 2 s: their step takes 0.2 s on average."""
    slow = "speed: {law: 'lognormal(1,0.5)', mean: 200ms}\n      think: {mean: 1800ms}"
    made = outline(load_text(TEXT.replace("speed: 310ms", slow)), parameters=None, processes=1)
    assert [one.think for one in made.classes] == [LAW, "uniform(0.5,1.5) x 1.8s"]
    assert made.classes[1].step_seconds == 0.2
    assert made.updates_per_second == pytest.approx(62)
