"""Runs without enough memory on the host are refused with the numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.errors import HostError
from testbed.plan.budget import require_memory
from testbed.plan.make import plan
from testbed.scenario import Scenario, load
from testbed.scenario.override import Override
from testbed.telemetry.host import available_bytes

QUICKSTART = Path(__file__).parents[2] / "scenarios" / "quickstart.yaml"


def require(scenario: Scenario, *, available: int) -> None:
    require_memory(scenario, plan(scenario, "r"), available=available)


def test_enough_memory() -> None:
    require(load(QUICKSTART), available=10**10)


def test_insufficient_memory_names_the_number_that_fits() -> None:
    scenario = load(QUICKSTART, overrides=[Override.parse("workers.count=1000")])
    with pytest.raises(HostError, match=r"memory for 1,000 workers: about .* MB needed") as caught:
        require(scenario, available=10**10)
    most = int(caught.value.hint.split("--workers ")[1].split(";")[0])
    assert 300 < most < 500
    fitting, more = (Override.parse(f"workers.count={count}") for count in (most, most + 1))
    require(load(QUICKSTART, overrides=[fitting]), available=10**10)
    with pytest.raises(HostError):
        require(load(QUICKSTART, overrides=[more]), available=10**10)


def test_a_host_too_small_for_any_run() -> None:
    with pytest.raises(HostError, match="12 workers") as caught:
        require(load(QUICKSTART), available=10**8)
    assert "more memory" in caught.value.hint


def test_available_memory_is_read_from_proc(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 10 kB\nMemAvailable:    2048 kB\n")
    assert available_bytes(tmp_path) == 2048 * 1024
