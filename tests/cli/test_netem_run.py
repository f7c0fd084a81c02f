"""A whole run over links with delay, jitter, loss and rate, on kernels with netem."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCENARIO = Path(__file__).parents[2] / "scenarios" / "adsl.yaml"

pytestmark = [pytest.mark.root, pytest.mark.netem, pytest.mark.slow, pytest.mark.alone]


# Control groups in a mount namespace of its own, where the kernel has some that are not mounted.
GROUPS = """
if ! grep -q ' cgroup' /proc/self/mounts; then mount -t cgroup2 none /sys/fs/cgroup; fi
exec "$@"
"""


def test_a_run_over_access_lines_measures_the_configured_values(tmp_path: Path) -> None:
    small = ["stop.updates=60", "evaluate.every=60", "evaluate.images=50"]
    settings = [part for setting in small for part in ("--set", setting)]
    runs = ["--runs", str(tmp_path), "--name", "adsl"]
    up = ["up", str(SCENARIO), "--workers", "4", *settings, *runs]
    ended = subprocess.run(
        ["unshare", "-m", "bash", "-c", GROUPS, "bash", sys.executable, "-m", "testbed", *up],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path)},
    )
    # 6: one emulated processor may be too busy for a valid verdict.
    assert ended.returncode in (0, 6), ended.stdout + ended.stderr
    summary = json.loads((tmp_path / "adsl" / "summary.json").read_text())
    print(summary["verdict"])
    lines = (tmp_path / "adsl" / "events.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    (links,) = (event for event in events if event["event"] == "links")
    assert (links["differences"], links["left_out"]) == ([], [])
    assert summary["updates"]["total"] == 60
    for event in events:
        if event["event"] == "rate":
            configured = event["configured_bits_per_second"]
            print(event["link"], event["measured_bits_per_second"] / configured)
            if configured <= 12e6:  # faster ones overload an emulated processor
                assert event["measured_bits_per_second"] == pytest.approx(configured, rel=0.05)
        if event["event"] == "round_trip":
            print(event)
