"""Slim-DP over shaped links, in real containers: every byte as in a simulation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import testbed
from testbed.payloads.core_explorer import sizes
from testbed.telemetry.events import read_events

pytestmark = [pytest.mark.root, pytest.mark.slow]

SCENARIO = Path(__file__).parents[2] / "scenarios" / "slim_dp" / "links.yaml"
FAULTS = "[{kill: {at: {version: 8}, workers: [w1]}}, {join: {at: {version: 11}, workers: [w1]}}]"
N = 65 * 800 + 801 * 800 + 801 * 10
CORE, EXPLORER = sizes(N, 0.3, 0.15)
KNOWN = 8 + 4 * CORE + 8 * EXPLORER
NEW = KNOWN + 4 * CORE


def columns(updates: pd.DataFrame, worker: int) -> tuple[list[int], list[int]]:
    """Payload up and down of a worker's pushes, in order."""
    own = updates[updates["worker"] == worker]
    return own["payload_up_bytes"].tolist(), own["payload_down_bytes"].tolist()


def test_keys_are_sent_once_and_once_more_to_a_worker_that_rejoins(bed: Any) -> None:
    """w1 is killed after two rounds, and joins again while the others are in their third or fourth.

    It sends its core's keys with its first push before and after. The server believes that it knows
    the server's core, so the first partial reply after its return is missed.
    """
    for runtime in ("native", "simulated"):
        sets = (f"runtime={runtime}", "algorithm.core_rounds=50", f"faults={FAULTS}")
        options = [word for one in (*sets, "stop.updates=28") for word in ("--set", one)]
        up = bed.up(*options, file=str(SCENARIO))
        done = up.end()
        assert done.status in (0, 6), done.err
        updates = testbed.Run(up.folder.path).updates
        for worker in (0, 2, 3):
            sent, got = columns(updates, worker)
            assert sent == [NEW] + (len(sent) - 1) * [KNOWN]
            assert got == [4 * N, NEW] + (len(got) - 2) * [KNOWN]
        sent, got = columns(updates, 1)
        again = got.index(4 * N, 1)
        assert sent == [NEW, *(again - 1) * [KNOWN], NEW, *(len(sent) - again - 1) * [KNOWN]]
        assert got[: again + 2] == [4 * N, NEW, *(again - 2) * [KNOWN], 4 * N, NEW]
        missed = [one.event for one in read_events(up.folder.events) if one.name == "keys_missed"]
        assert [(one.node, one.direction, one.payload_bytes) for one in missed] == [
            ("w1", "down", KNOWN)
        ]
