"""Runs in LXC containers from the command line: the same counts as natively, and nothing left."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import testbed
from testbed.errors import HostError
from testbed.runtimes.lxc.driver import LxcDriver
from testbed.runtimes.lxc.groups import find_records

pytestmark = [pytest.mark.root, pytest.mark.slow]

SCENARIO = """\
name: contained
seed: 1
algorithm: bsp
model: digits-cnn
dataset: digits
workers:
  count: 3
  batch_size: 10
  classes: {device: {memory: 1GiB}}
stop: {updates: 12}
evaluate: {every: 12, images: 100}
"""
FAULTS = """\
faults:
  - leave: {workers: [w1], at: {version: 30}}
  - join: {workers: [w1], at: {version: 60}}
  - kill: {workers: [w2], at: {version: 90}}
"""


@pytest.fixture(autouse=True)
def _needs_lxc() -> None:
    try:
        LxcDriver().check(())
    except HostError as lacking:
        pytest.skip(f"needs LXC: {lacking}")


@pytest.fixture
def assert_nothing_is_left(bed: Any, eventually: Any) -> Callable[[str], None]:
    def check(run: str) -> None:
        eventually(lambda: bed.remains(run) == [])  # the host's first process reaps the monitors
        assert [record.place for record in find_records() if record.run == run] == []

    return check


def test_the_same_bytes_are_counted_as_natively(bed: Any, assert_nothing_is_left: Any) -> None:
    file, ingress = bed.scenario("contained.yaml", SCENARIO), {}
    for runtime in ("lxc", "native"):
        up = bed.up("--runtime", runtime, file=file)
        done = up.end()
        assert done.status in (0, 6), done  # a busy host may make the run invalid
        ingress[runtime] = testbed.Run(up.folder.path).summary["ingress"]
        assert_nothing_is_left(up.name)
    lxc, native = ingress["lxc"], ingress["native"]
    assert lxc["payload_bytes"] == native["payload_bytes"]
    assert lxc["tcp_bytes"] == pytest.approx(native["tcp_bytes"], rel=0.01)
    assert abs(lxc["reconciliation"]["difference_ratio"]) < 0.01


def test_a_worker_returns_in_a_new_container(bed: Any, assert_nothing_is_left: Any) -> None:
    text = SCENARIO.replace("bsp", "asgd").replace("updates: 12", "updates: 150") + FAULTS
    text = text.replace("{memory", "{speed: 100ms, memory")  # or all is over before it returns
    up = bed.up("--runtime", "lxc", file=bed.scenario("faulty.yaml", text))
    done = up.end()
    assert done.status in (0, 6), done
    assert testbed.Run(up.folder.path).state.reason == "150 updates applied"
    assert up.events().count("launched") == 6  # two services, three workers, and one of them again
    assert_nothing_is_left(up.name)
