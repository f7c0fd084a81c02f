"""A killed parameter server is restarted from its checkpoint, and the run continues."""

from __future__ import annotations

import signal
from typing import Any

import pytest

import testbed
from testbed.telemetry.entry import only
from testbed.telemetry.event_kinds import Exited
from testbed.telemetry.events import read_events
from testbed.telemetry.ps_events import Done, Restored, Saved

pytestmark = [pytest.mark.root, pytest.mark.slow]

PACED = ("--set", "workers.think.mean=40ms", "--set", "workers.count=6")


@pytest.mark.parametrize(
    ("number", "how"),
    [
        (signal.SIGKILL, "ps was ended by SIGKILL"),
        pytest.param(signal.SIGTERM, "ps exited with status 0", marks=pytest.mark.nightly),
    ],
)
def test_workers_continue_and_every_update_is_recorded_once(
    bed: Any, number: int, how: str
) -> None:
    up = bed.up("--set", "checkpoint.every=100", "--set", "stop.updates=600", *PACED)
    up.wait_for_event("saved")
    up.wait_for_updates(130)
    bed.kill_node(up, "ps", number)
    done = up.end()
    assert done.status == 6, done
    assert f"{how}; restarted from its checkpoint" in done.out
    run, events = testbed.Run(up.folder.path), read_events(up.folder.events)
    assert run.state.reason == "600 updates applied"

    (restored,) = only(events, Restored)
    assert restored.version in {event.version for event in only(events, Saved)}
    assert f"resumed from update {restored.version:,}" in done.out
    assert run.summary["restarts"] == {"total": 1, "lost_updates": restored.lost_updates}
    (reason,) = (one for one in run.verdict.reasons if one.startswith("ps"))
    assert f"{restored.lost_updates:,} updates were lost" in reason
    (lost,) = (event for event in only(events, Exited) if not event.planned)  # no worker gave up
    assert (lost.node, lost.restarted) == ("ps", True)

    assert run.updates["version_applied"].tolist() == list(range(600))
    assert run.updates.groupby("worker")["sequence"].apply(lambda one: one.is_unique).all()
    assert run.evaluations["version"].is_monotonic_increasing
    (end,) = only(events, Done)
    assert end.applied == 600
    assert end.lost >= restored.lost_updates
    assert run.model("final").taken.version == 600
    assert not up.folder.checkpoint.exists()
    assert bed.remains(up.name) == []
