"""A run in which one node computes the gradients of all workers."""

from __future__ import annotations

from typing import Any

import pytest

from testbed.errors import HostError
from testbed.runtimes.lxc.driver import LxcDriver
from testbed.telemetry.entry import only
from testbed.telemetry.event_kinds import Exited, Launched
from testbed.telemetry.events import read_events

pytestmark = [pytest.mark.root, pytest.mark.slow]


@pytest.mark.parametrize(
    ("runtime", "compute", "updates"),
    [
        ("native", "shared", 1000),
        pytest.param("native", "{shared: {vmap: 2}}", 200, marks=pytest.mark.nightly),
        pytest.param("lxc", "shared", 1000, marks=pytest.mark.nightly),
    ],
)
def test_the_node_that_computes_is_restarted_and_loses_no_update(
    bed: Any, runtime: str, compute: str, updates: int
) -> None:
    if runtime == "lxc":
        try:
            LxcDriver().check(())
        except HostError as refusal:
            pytest.skip(str(refusal))
    options = ("--set", f"compute={compute}", "--set", f"stop.updates={updates}")
    up = bed.up("--runtime", runtime, *options)
    up.wait_for_updates(50)
    bed.kill_node(up, "compute")
    done = up.end()
    assert done.status == 6, done  # not valid: the loss was not planned
    assert "compute was lost before the end: killed by signal 9, and restarted." in done.out, done
    events = list(read_events(up.folder.events))
    ends = [(one.node, one.restarted) for one in only(events, Exited) if not one.planned]
    assert ends == [("compute", True)]
    assert [one.node for one in only(events, Launched)].count("compute") == 2
    assert up.folder.state().reason == f"{updates} updates applied"
