"""A controller killed without warning leaves nothing behind and loses nothing."""

from __future__ import annotations

import json
import signal
import time
from typing import Any

import pytest

import testbed
from testbed.runtimes.native.driver import NativeDriver
from testbed.telemetry.recovery import spooled_rows

pytestmark = [pytest.mark.root, pytest.mark.slow]

ENDLESS = ("--set", "stop.updates=1000000", "--set", "workers.think.mean=10ms")


@pytest.mark.parametrize(
    "moment",
    [
        "created",
        pytest.param("recorded", marks=pytest.mark.nightly),
        "launched",
        pytest.param("brought_up", marks=pytest.mark.nightly),
    ],
)
def test_down_leaves_nothing_behind(bed: Any, moment: str) -> None:
    up = bed.up(*ENDLESS)
    up.reach(moment)
    assert up.signal(signal.SIGKILL).status == -signal.SIGKILL
    down = bed.run("down", up.name)
    assert (down.status, down.out) == (0, f"{up.name}: stopped\n"), down
    assert bed.remains(up.name) == []
    state = up.folder.state()
    assert (state.state, state.reason) == ("interrupted", "stopped by `testbed down`")
    again = bed.run("down", up.name)
    assert (again.status, again.out) == (0, f"{up.name}: nothing to remove\n")
    assert bed.run("report", up.name, "--json").status == 0
    assert bed.run("ps", "--json").json == []


def test_without_down_the_agent_exits_and_the_records_are_recovered(bed: Any) -> None:
    up = bed.up(*ENDLESS)
    up.wait_for_updates(100)
    up.wait_for_event("evaluated")
    up.signal(signal.SIGKILL)
    deadline = time.monotonic() + 10
    while bed.remains(up.name):
        assert time.monotonic() < deadline, bed.remains(up.name)
        time.sleep(0.05)
    (row,) = bed.run("ps", "--json").json
    assert row["state"] == "training, but its controller has died"
    (spooled,) = spooled_rows(up.folder, over=True)
    assert len(spooled) >= 100
    report = bed.run("report", up.name)
    assert report.status == 0
    assert "recovered: " in report.out
    summary = json.loads(up.folder.summary.read_text())
    assert summary["updates"]["total"] == len(spooled)
    (reason, *_) = summary["verdict"]["reasons"]
    assert "its controller died in state training" in reason
    run = testbed.Run(up.folder.path)
    assert run.updates["version_applied"].tolist() == list(range(len(spooled)))
    assert run.evaluations["version"].is_monotonic_increasing
    assert "recovered" not in bed.run("report", up.name).out


@pytest.mark.alone
def test_down_all_ends_only_known_runs(bed: Any) -> None:
    if foreign := NativeDriver().find():
        pytest.skip(f"other runs are on this host, and may be somebody's: {', '.join(foreign)}")
    stranger = {"XDG_STATE_HOME": str(bed.path / "stranger")}
    killed, live, other = bed.up(*ENDLESS), bed.up(*ENDLESS), bed.new_name()
    runs = ("--runs", str(bed.path / "elsewhere"))
    theirs = bed.start("up", "tiny.yaml", "--name", other, *runs, *ENDLESS, **stranger)
    theirs.wait_for_event("brought_up")
    for up in (killed, live):
        up.wait_for_event("brought_up")
    killed.signal(signal.SIGKILL)
    down = bed.run("down", "--all")
    assert down.status == 0, down
    assert sorted(down.out.splitlines()) == sorted(
        [
            f"{killed.name}: stopped",
            f"{live.name}: stopped",
            f"{other}: skipped: it is active and belongs to another user",
        ]
    )
    assert live.end().status == 130
    assert theirs.process.poll() is None
    assert bed.run("down", "--all", *runs, **stranger).out == f"{other}: stopped\n"
    assert theirs.end().status == 130
    assert bed.run("down", "--all").out == "nothing to stop: you have no active runs\n"
    assert [line for up in bed.started for line in bed.remains(up.name)] == []
