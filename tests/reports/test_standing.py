"""The state of a run, from the records of the small run and of an active one."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator

import numpy as np
import pytest

from testbed.errors import DataError
from testbed.reports.frames import Run
from testbed.reports.history import Tally
from testbed.reports.standing import StandingReader
from testbed.telemetry.entry import Entry
from testbed.telemetry.folder import RunFolder
from testbed.telemetry.ps_events import Restored
from testbed.telemetry.recovery import read_updates
from testbed.telemetry.rows import UPDATE, Rows
from testbed.telemetry.spool import SpoolWriter

START = 1_700_000_000.0  # start of the small run's training


def test_the_last_state_of_an_ended_run(folder: RunFolder) -> None:
    """It ended at 2 s, 4 s emulated: w3 had just pushed, the last push of w2 was at 1.5 s.

    Its six updates start at 0.5 s, the two of slow workers 2.5 s apart.
    """
    standing = StandingReader(Run(folder.path)).look(START + 1_000)
    assert (standing.state, standing.time_seconds, standing.updates) == ("finished", 4.0, 6)
    assert standing.updates_per_second == 5 / 3.5
    assert (standing.done_ratio, standing.eta_seconds) == (1.0, None)
    assert standing.accuracy == 0.625
    ages = {one.node: one.age_seconds for one in standing.workers}
    assert ages == {"w0": 2.0, "w1": 1.0, "w2": 2.5, "w3": 0.0}
    cycles = {one.node: one.cycle_seconds for one in standing.workers}
    assert cycles == {"w0": 1.5, "w1": 2.0, "w2": None, "w3": None}
    fast, slow = standing.classes
    assert (fast.updates, fast.staleness_mean, fast.workers) == (4, 1.5, 2)
    assert (slow.updates, slow.staleness_mean, slow.updates_per_second) == (2, 3.0, 0.4)
    assert [one.late_steps for one in standing.workers] == [1, 1, 0, 0]
    assert standing.server["payload_in_bytes"] == 6_200
    # Two readings two real seconds apart, four emulated: 1 byte, then 10,000.
    assert standing.server["wire_in_bytes_per_second"] == pytest.approx(9_999 / 4)


def test_classes_of_another_scenario_are_named(folder: RunFolder) -> None:
    content = json.loads(folder.run_file.read_text())
    folder.run_file.write_text(json.dumps(content | {"classes": ["fast", "x", "slow", "slow"]}))
    with pytest.raises(DataError, match=r"run\.json: classes: found x, expected .*: fast, slow"):
        StandingReader(Run(folder.path))


@pytest.fixture
def rows(folder: RunFolder) -> Rows:
    """The six updates of the small run."""
    return read_updates(folder)


@pytest.fixture
def going_on(folder: RunFolder, rows: Rows) -> Iterator[RunFolder]:
    """The small run as it was before its end, its lock held."""
    kept = [
        line
        for line in folder.events.read_text().splitlines(keepends=True)
        if '"finished"' not in line and '"left"' not in line
    ]
    folder.events.write_text("".join(kept))
    folder.move("training", now=START)
    for part in folder.updates.glob("part-*"):
        part.unlink()
    folder.lock.touch()
    lock = os.open(folder.lock, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    yield folder
    os.close(lock)


def test_an_active_run_is_followed(going_on: RunFolder, rows: Rows) -> None:
    spool = SpoolWriter(going_on.spool)
    for row in rows[:4]:
        spool.append(row)
    spool.flush()
    reader = StandingReader(Run(going_on.path))
    standing = reader.look(START + 1.5)  # 3 s emulated; w2's only update was at 1.5 s
    assert standing.alive
    assert (standing.time_seconds, standing.updates) == (3.0, 4)
    assert standing.workers[2].age_seconds == 1.5
    assert standing.workers[3].age_seconds is None
    # Three updates from 0.5 to 2 s, and the next is half a second later than any before. The
    # remaining two take 4/3 s emulated then, at twice the real pace.
    assert standing.updates_per_second == 3 / 2.0
    assert standing.done_ratio == 4 / 6
    assert standing.eta_seconds == pytest.approx(2 / 3)
    for row in rows[4:]:
        spool.append(row)
    spool.close()
    assert reader.look(START + 2.5).updates == 6


def test_updates_that_a_server_lost_are_not_counted(going_on: RunFolder, rows: Rows) -> None:
    spool = SpoolWriter(going_on.spool)
    for row in rows:
        spool.append(row)
    spool.close()
    reader = StandingReader(Run(going_on.path))
    assert reader.look(START + 2).updates == 6
    going_on.spool.unlink()
    spool = SpoolWriter(going_on.spool)
    for row in rows[:2]:
        spool.append(row)
    spool.close()
    with going_on.events.open("a") as events:
        events.write(Entry(START + 2, 2.0, Restored(2, 1.0, 4), "ps").line())
    assert reader.look(START + 2).updates == 2


def rounds(*moments: tuple[float, list[int]]) -> Rows:
    """Updates of these workers that are applied together at each time."""
    rows = [(time, worker) for time, workers in moments for worker in workers]
    made = np.zeros(len(rows), UPDATE)
    made["time_seconds"], made["worker"] = zip(*rows, strict=True)
    return made


@pytest.mark.parametrize("whole", [True, False], ids=["read at once", "read row by row"])
def test_the_rate_uses_whole_rounds(whole: bool) -> None:
    """Rounds of 30 s, much longer than the window: five updates of w0 to w4, then two."""
    rows = rounds((30.0, [0, 1, 2, 3, 4]), (60.0, [0, 1, 2, 3, 4]), (90.0, [4, 0]))
    tally = Tally(6)
    for part in [rows] if whole else rows.reshape(-1, 1):
        tally.add(part)
    everybody = range(6)
    assert tally.pace(119.0, everybody) == 2 / 30
    assert tally.pace(130.0, everybody) == 2 / 40  # the next is 10 s late
    assert tally.pace(100.0, [0]) == 1 / 30
    assert tally.pace(89.0, [1, 2]) == 2 / 30
    assert tally.pace(100.0, [5]) == 0.0


def test_the_rate_uses_the_last_ten_seconds() -> None:
    """One update per second until 100 s, then two per second."""
    moments = [*np.arange(1.0, 100.0), *np.arange(100.0, 110.5, 0.5)]
    tally = Tally(1)
    tally.add(rounds(*((time, [0]) for time in moments)))
    assert tally.pace(110.0, [0]) == 2.0
