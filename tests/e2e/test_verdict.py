"""The verdict on stopped nodes, and on a host that is busy with other work."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.alone]

SCENARIO = """\
name: paced
seed: 1
runtime: native
algorithm: asgd
model: digits-cnn
dataset: digits
workers:
  count: 3
  think: {law: constant, mean: 200ms}
  classes:
    even: {speed: 200ms}
stop: {time: 7s}
evaluate: {every: 1s, images: 100}
"""
STOPPED_SECONDS = 3.0
BURNING_SECONDS = 60.0
BURN = (
    f"import time; end = time.monotonic() + {BURNING_SECONDS}\nwhile time.monotonic() < end: pass"
)


def verdict(up: Any) -> Any:
    return json.loads(up.folder.summary.read_text())["verdict"]


def test_a_stopped_server_and_a_stopped_worker_are_named(bed: Any) -> None:
    up = bed.up(file=bed.scenario("paced.yaml", SCENARIO))
    up.wait_for_updates(6)
    nodes = bed.nodes(up.name)
    pids = [nodes[node]["pid"] for node in ("ps", "w1")]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(STOPPED_SECONDS)  # under test: they are stopped for this long
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    assert up.end().status == 6
    reasons = verdict(up)["reasons"]
    assert any(one.startswith("The parameter server did not execute for ") for one in reasons), (
        reasons
    )
    assert any(one.startswith("w1 did not execute for ") for one in reasons), reasons
    assert not any(one.startswith(("w0", "w2")) for one in reasons), reasons


@pytest.fixture
def full_host() -> Iterator[None]:
    """Twice as many busy processes as CPUs, until the test has ended."""
    burners = [
        subprocess.Popen([sys.executable, "-c", BURN]) for _ in range(2 * (os.cpu_count() or 1))
    ]
    yield
    for burner in burners:
        burner.kill()
        burner.wait()


@pytest.mark.usefixtures("full_host")
def test_a_busy_host_is_a_warning_if_nothing_was_late(bed: Any) -> None:
    up = bed.up("--set", "stop.time=3s", file=bed.scenario("paced.yaml", SCENARIO))
    assert up.end().status == 0, verdict(up)
    (warning,) = verdict(up)["warnings"]
    assert warning.startswith("The host was more than 90% busy during ")
