"""``testbed fault`` on an active run: what it prints, and what remains if it is not undone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.root, pytest.mark.slow]


def fault(bed: Any, *words: str) -> subprocess.CompletedProcess[str]:
    """Run ``testbed fault``; the registry knows the run's folder."""
    done: subprocess.CompletedProcess[str] = bed.run_command(
        ["fault", *words], cwd=Path.cwd(), environment=bed.environment, timeout=60
    )
    return done


def condition(bed: Any, name: str, node: str) -> str:
    rows = {row["node"]: row for row in json.loads(bed("ps", name, "--json").stdout)}
    return str(rows[node]["condition"])


def test_workers_frozen_by_hand_are_thawed_if_the_controller_is_killed(bed: Any, name: str) -> None:
    planned = "faults=[{kill: {at: {version: 900000}, workers: [w1]}}]"
    options = ("--detach", "--name", name, "--set", "stop.updates=1000000", "--set", planned)
    bed("up", bed.scenario, *options)
    frozen = fault(bed, "freeze", name, "w0", "--for", "1h")
    assert (frozen.returncode, frozen.stdout) == (0, "w0: frozen for 1h of emulated time\n"), (
        frozen.stderr
    )
    assert condition(bed, name, "w0") == "frozen"
    again = fault(bed, "freeze", name, "w0")
    assert (again.returncode, "w0 is frozen already" in again.stderr) == (5, True)
    assert "expected workers" in fault(bed, "freeze", name, "ps").stderr
    assert "expected a duration" in fault(bed, "freeze", name, "w1", "--for", "soon").stderr
    thawed = fault(bed, "thaw", name)
    assert (thawed.returncode, thawed.stdout) == (0, "w0: thawed\n"), thawed.stderr
    first, second, third = json.loads(fault(bed, "list", name, "--json").stdout)
    assert (first["kind"], first["nodes"], first["planned"]) == ("freeze", ["w0"], "by hand")
    assert (second["begins"], second["nodes"]) == (False, ["w0"])
    assert (third["planned"], third["actual_seconds"]) == ("version 900000", None)
    slowed = fault(bed, "slow", name, "w1", "--factor", "3", "--for", "60m")
    assert slowed.stdout == "w1: steps take 3 times as long for 60m of emulated time\n", (
        slowed.stderr
    )
    assert (
        "w1 is slowed down already"
        in fault(*(bed, "slow", name, "w1", "--factor", "2", "--for", "1h")).stderr
    )
    long = fault(bed, "partition", name, "w0", "--for", "1h")
    assert (long.returncode, "expected at most 10s" in long.stderr) == (2, True)
    cut = fault(bed, "partition", name, "w0", "--for", "1s")
    assert cut.stdout == "w0: links blocked for 1s of emulated time\n", cut.stderr
    assert fault(bed, "freeze", name, "w*", "--for", "1h").returncode == 0
    os.kill(bed.controller(name), signal.SIGKILL)
    for node in ("w0", "w1"):
        bed.wait_until(lambda node=node: condition(bed, name, node) == "running")
    bed("down", name)
    gone = fault(bed, "freeze", name, "w0")
    assert (gone.returncode, "no controller" in gone.stderr) == (5, True)
