"""Programs of a workload whose devices come and go, in every runtime."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from marks import in_docker_nightly

from testbed.telemetry.entry import only
from testbed.telemetry.event_kinds import FaultApplied, LinkChanged, WorkloadBegun
from testbed.telemetry.events import read_events

pytestmark = [pytest.mark.slow]
TRACES = Path(__file__).parents[2] / "scenarios" / "traces"
VERDICT = 6


@in_docker_nightly
def test_absent_devices_are_killed_frozen_or_cut_off(bed: Any, runtime: str) -> None:
    """traces/programs: what a device sends between the seconds 1 and 2 is lost, or sent later.

    Two more come late, and leave for good: the run does not wait for them. The link of the frozen
    one, which follows a recording, changes at 1.5 s.
    """
    text = yaml.safe_load((TRACES / "programs.yaml").read_text(encoding="utf-8"))
    text["stop"]["time"] = "5min"
    once = "time_seconds,available\n0,0\n1,1\n2,0\n2.5,0\n"
    for how in ("kill", "partition"):
        text["workload"][f"late-{how}"] = {
            "command": ["sleep", "600"],
            "availability": {"trace": "once.csv", "then": "hold", "offset": "none"},
            "when_absent": how,
        }
    steps = {"trace": "steps.csv", "then": "hold", "offset": "none"}
    text["workload"]["frozen"]["link"] = {"up": {"rate": steps}}
    bed.scenario("steps.csv", "time_seconds,bits_per_second\n0,8000000\n1.5,4000000\n3,4000000\n")
    for name in ("away.csv", "beats.py"):
        shutil.copy(TRACES / name, bed.path)
    bed.scenario("once.csv", once)
    file = bed.scenario("programs.yaml", yaml.safe_dump(text, sort_keys=False))
    up = bed.up("--runtime", runtime, file=file)
    done = up.end()
    assert done.status in {0, VERDICT}, done.err
    late = "all final programs have ended with status 0, except late-kill, late-partition, absent"
    assert up.folder.state().reason == f"{late} for good"
    arrived = Counter(up.folder.log("collector").read_text().split())
    entries = read_events(up.folder.events)
    begun = next(one.time for one in entries if isinstance(one.event, WorkloadBegun))
    changed = {
        (one.event.kind, *one.event.nodes): one.time
        for one in entries
        if isinstance(one.event, FaultApplied)
    }
    for name, lost in (("frozen", False), ("cut", True), ("killed", False)):
        sent = [float(line) for line in up.folder.log(name).read_text().splitlines()]
        left, back = changed["leave", name], changed["join", name]
        away = [n for n, at in enumerate(sent) if left < at < begun + 2]  # back after that
        if lost:
            missing = [n for n in range(30) if not arrived[f"{name}-{n}"]]
            assert set(away) <= set(missing)
            assert all(begun + 1 <= sent[n] <= back for n in missing)
        else:
            assert not away
            assert [arrived[f"{name}-{n}"] for n in range(30)].count(0) == 0
    assert sum(arrived[f"frozen-{n}"] for n in range(30)) == 30
    assert sum(arrived[f"killed-{n}"] for n in range(30)) >= 30
    faults = only(entries, FaultApplied)
    assert Counter((one.kind, one.recorded) for one in faults) == {
        ("leave", True): 5,
        ("join", True): 5,
    }
    links = [one.nodes for one in only(entries, LinkChanged) if one.action == "recorded"]
    assert links == [("frozen",)]
    verdict = json.loads(up.folder.summary.read_text())["verdict"]
    assert [one for one in verdict["reasons"] if "late" not in one] == []
    assert bed.remains(up.name) == []
