"""At any signal the command tears down, records the interruption, and exits with 130."""

from __future__ import annotations

import json
import signal
import time
from typing import Any

import pytest

import testbed

pytestmark = [pytest.mark.root, pytest.mark.slow]

ENDLESS = ("--set", "stop.updates=1000000", "--set", "workers.think.mean=10ms")


@pytest.mark.parametrize(
    ("moment", "number"),
    [
        ("created", signal.SIGINT),
        pytest.param("recorded", signal.SIGTERM, marks=pytest.mark.nightly),
        ("launched", signal.SIGHUP),
        ("evaluated", signal.SIGTERM),
    ],
)
def test_a_signal_at_any_phase(bed: Any, moment: str, number: signal.Signals) -> None:
    up = bed.up(*ENDLESS)
    up.reach(moment)
    done = up.signal(number)
    assert done.status == 130, done
    assert "Traceback" not in done.err
    assert "recovered" not in done.out  # messages in transit were recorded
    state = up.folder.state()
    assert (state.state, state.reason) == ("interrupted", f"by {number.name}")
    assert bed.remains(up.name) == []
    summary = json.loads(up.folder.summary.read_text())
    assert summary["verdict"]["reasons"][0].startswith("The run was interrupted")
    run = testbed.Run(up.folder.path)
    assert len(run.updates) == summary["updates"]["total"]
    assert bed.run("report", up.name, "--json").json == summary


def test_repeated_signals_change_nothing(bed: Any) -> None:
    up = bed.up(*ENDLESS)
    up.wait_for_updates(20)
    for _ in range(20):
        up.process.send_signal(signal.SIGINT)
        time.sleep(0.01)
    done = up.end()
    assert (done.status, done.err.strip()) == (130, "")
    assert up.folder.state().state == "interrupted"
    assert up.folder.summary.exists()
    assert bed.remains(up.name) == []


def test_a_signal_after_the_end_changes_nothing(bed: Any) -> None:
    up = bed.up("--set", "stop.updates=20")
    up.wait_for_event("torn_down")
    done = up.signal(signal.SIGINT)
    assert done.status == 0, done
    assert up.folder.state().state == "finished"
    assert up.folder.summary.exists()


@pytest.mark.parametrize(
    "moment", ["recorded", pytest.param("launched", marks=pytest.mark.nightly)]
)
def test_down_from_another_process_at_any_phase(bed: Any, moment: str) -> None:
    up = bed.up(*ENDLESS)
    up.reach(moment)
    ended = bed.run("down", str(up.folder.path))
    assert (ended.status, ended.out) == (0, f"{up.name}: stopped\n")
    done = up.end()
    assert done.status == 130, done
    assert bed.remains(up.name) == []
    state = up.folder.state()
    assert (state.state, state.reason) == ("interrupted", "stopped by `testbed down`")
