"""Workloads whose processes are started by a launcher: torchrun with restarts, and mpirun."""

from __future__ import annotations

import json
import re
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from testbed.telemetry.event_kinds import FaultApplied
from testbed.telemetry.events import read_events

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.nightly]
SCENARIOS = Path(__file__).parents[2] / "scenarios"
VERDICT = 6
STEPS = 30

PYTHON = "/usr/bin/python3"


def test_torchrun_restarts_the_ranks_after_a_node_was_killed(bed: Any) -> None:
    """Both nodes print every step, and repeat one at most.

    The node that is killed may miss the step whose end it did not live to print.
    """
    for name in ("elastic.py", "elastic.yaml"):
        shutil.copy(SCENARIOS / "ddp" / name, bed.path)
    named = ("--set", f"workload.node.python={sys.prefix}")
    up = bed.up("--runtime", "native", *named, file="elastic.yaml")
    done = up.end(within=600.0)
    assert done.status in {0, VERDICT}, done.err
    assert up.folder.state().reason == "all final programs have ended with status 0"
    kills = [
        (entry.event.begins, entry.event.nodes)
        for entry in read_events(up.folder.events)
        if isinstance(entry.event, FaultApplied)
    ]
    assert kills == [(True, ("node1",)), (False, ("node1",))]
    for node in ("node0", "node1"):
        log = up.folder.log(node).read_text()
        starts = [int(found) for found in re.findall(r"rank \d of 2 starts after (\d+) steps", log)]
        assert starts[0] == 0
        assert len(starts) == 2
        assert 10 <= starts[1] < STEPS  # step 10 was printed, and step 9 is saved by all
        steps = [int(found) for found in re.findall(r"^step (\d+) ", log, re.MULTILINE)]
        assert len({*range(STEPS)} - {*steps}) <= (node == "node1")
        assert len(steps) <= STEPS + 1
    assert bed.remains(up.name) == []


@pytest.mark.alone
def test_mpirun_starts_ranks_without_ssh(bed: Any) -> None:
    """scenarios/mpi: 0.84 s a round over the slowest link, and 5 MB sent by every rank."""
    if not shutil.which("mpirun") or not shutil.which(PYTHON):
        pytest.skip("needs the packages openmpi-bin and python3")
    asked = [PYTHON, "-c", "import mpi4py"]
    if subprocess.run(asked, check=False, capture_output=True).returncode:
        pytest.skip("needs the package python3-mpi4py")
    for file in (SCENARIOS / "mpi").iterdir():
        shutil.copy(file, bed.path)
    up = bed.up("--runtime", "native", file="mpi.yaml")
    done = up.end(within=120.0)
    assert done.status in {0, VERDICT}, done.err
    log = up.folder.log("mpirun").read_text()
    seconds = [float(found) for found in re.findall(r"round \d seconds=([\d.]+)", log)]
    assert len(seconds) == 5
    assert statistics.median(seconds) >= 0.95 * 0.84  # the link permits no less
    pairs = json.loads(up.folder.summary.read_text())["pairs"]
    for rank in range(3):
        assert f"rank {rank} of 3 at rank{rank}: all received" in log
        pair = pairs[f"rank{rank}"][f"rank{(rank + 1) % 3}"]
        assert abs(pair["sent_bytes"] - 5e6) < 0.01 * 5e6
    assert bed.remains(up.name) == []
