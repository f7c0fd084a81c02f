"""After a controller is killed, missing records are recovered from the parameter server's."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from testbed.errors import DataError, TestbedError
from testbed.telemetry.entry import Entry
from testbed.telemetry.event_kinds import BroughtUp, StateChanged
from testbed.telemetry.events import read_events
from testbed.telemetry.files import LineReader, drop_torn_line
from testbed.telemetry.folder import RunFolder
from testbed.telemetry.parts import DamagedPartError, part_paths, read_parts
from testbed.telemetry.ps_events import Evaluated, Restored
from testbed.telemetry.record import Clock, Recorder
from testbed.telemetry.recovery import Recovered, read_updates, recover, spooled_rows
from testbed.telemetry.rows import UPDATE, UpdateRow, joined
from testbed.telemetry.spool import SpoolReader, SpoolWriter, cut_spool, header


def evaluated(version: int) -> Entry:
    event = Evaluated(
        time_seconds=2.0,
        version=version,
        payload_up_bytes=10,
        loss=0.5,
        metrics={"top1": 0.5, "top5": 1.0},
        images=10,
        final=False,
    )
    return Entry(1.0, 1.0, event)


def row(version: int) -> UpdateRow:
    values = dict.fromkeys(UpdateRow._fields, 0) | {"sequence": 1, "version_applied": version}
    return UpdateRow(**values)


@pytest.fixture
def killed(tmp_path: Path) -> RunFolder:
    """Seven updates and three events at the parameter server, of which the controller recorded
    four and one; it died in the middle of every file."""
    folder = RunFolder.create(tmp_path, "r", scenario="s", text="", classes=["a"], now=0.0)
    with closing(SpoolWriter(folder.spool)) as spool:
        for version in range(7):
            spool.append(row(version))
    with folder.spool.open("ab") as file:
        file.write(b"half a row")
    lines = [evaluated(version).line() for version in (2, 4, 6)]
    folder.ps_events.write_text("".join(lines) + '{"event"')
    recorder = Recorder.into(folder, time_scale=2.0, clock=Clock(lambda: 0.0, lambda: 0.0))
    recorder.event(StateChanged("training"))
    recorder.updates(next(spooled_rows(folder, over=False))[:4])
    recorder.from_ps(evaluated(2))
    recorder.close()
    (folder.updates / ".part-0001.parquet.tmp").write_bytes(b"PAR1")
    for path in (folder.events, folder.evaluations):
        with path.open("a") as file:
            file.write("2.0,1.0,4")
    return folder


def test_a_reader_does_not_block_the_recovery(killed: RunFolder) -> None:
    killed.lock.touch()
    with killed.locked(shared=True):
        assert recover(killed, time_scale=2.0).updates == 3


def test_one_reader_recovers_at_a_time(killed: RunFolder) -> None:
    with killed.alone():
        assert recover(killed, time_scale=2.0) == Recovered()
    assert recover(killed, time_scale=2.0).updates == 3


def test_everything_is_recovered(killed: RunFolder) -> None:
    assert recover(killed, time_scale=2.0) == Recovered(updates=3, evaluations=2, events=2)
    assert list(joined(read_parts(killed.updates))["version_applied"]) == list(range(7))
    assert [path.name for path in sorted(killed.updates.iterdir())] == [
        "part-0000.parquet",
        "part-0001.parquet",
    ]
    assert LineReader(killed.evaluations).read()[1:] == [
        b"2.0,1.0,%d,10,0.5,0.5,1.0,10,false" % version for version in (2, 4, 6)
    ]
    state, *found = read_events(killed.events)
    assert state.event == StateChanged("training")
    assert found == [replace(evaluated(version), source="ps") for version in (2, 4, 6)]


def test_recovery_is_idempotent(killed: RunFolder) -> None:
    recover(killed, time_scale=2.0)
    before = killed.evaluations.read_bytes(), killed.events.read_bytes()
    assert not recover(killed, time_scale=2.0)
    assert (killed.evaluations.read_bytes(), killed.events.read_bytes()) == before


def test_a_live_run_is_untouched(killed: RunFolder) -> None:
    with killed.lock.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert recover(killed, time_scale=2.0) == Recovered()
    assert len(joined(read_parts(killed.updates))) == 4


def test_without_the_records_of_the_parameter_server(killed: RunFolder) -> None:
    killed.spool.unlink()
    killed.ps_events.unlink()
    assert not recover(killed, time_scale=2.0)
    assert len(joined(read_parts(killed.updates))) == 4


def test_a_deleted_part_is_restored(killed: RunFolder) -> None:
    (killed.updates / "part-0000.parquet").write_bytes(b"damaged")
    (killed.updates / "part-0000.parquet").unlink()
    assert recover(killed, time_scale=2.0).updates == 7
    assert len(joined(read_parts(killed.updates))) == 7


@pytest.fixture
def whole(killed: RunFolder) -> RunFolder:
    """A recovered run: four updates in the first part, three in the second."""
    recover(killed, time_scale=2.0)
    return killed


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("damage", ["cut", "garbled", "gone"])
def test_a_damaged_part_is_restored(whole: RunFolder, number: int, damage: str) -> None:
    part = whole.updates / f"part-{number:04d}.parquet"
    content = part.read_bytes()
    if damage == "gone":
        part.unlink()
    else:
        part.write_bytes(
            content[:-9] if damage == "cut" else content[:4] + b"?" * 60 + content[64:]
        )
    missing = 7 if number == 0 else 3  # those not in the parts before it
    assert list(read_updates(whole)["version_applied"]) == list(range(7))
    assert recover(whole, time_scale=2.0).updates == missing
    assert list(joined(read_parts(whole.updates))["version_applied"]) == list(range(7))
    assert not recover(whole, time_scale=2.0)


def test_a_deleted_folder_of_updates_is_restored(whole: RunFolder) -> None:
    shutil.rmtree(whole.updates)
    assert len(read_updates(whole)) == 7
    assert recover(whole, time_scale=2.0).updates == 7
    assert list(joined(read_parts(whole.updates))["version_applied"]) == list(range(7))


def test_a_file_in_place_of_the_folder_of_updates(whole: RunFolder) -> None:
    shutil.rmtree(whole.updates)
    whole.updates.write_text("")
    for attempt in (lambda: recover(whole, time_scale=2.0), lambda: read_updates(whole)):
        with pytest.raises(DataError, match="updates: found a file, expected the folder"):
            attempt()
    whole.updates.unlink()
    assert recover(whole, time_scale=2.0).updates == 7


def test_updates_missing_in_the_spool_are_kept(whole: RunFolder) -> None:
    """Three are after the damage, and at least one was in it; the spool has only three."""
    (whole.updates / "part-0000.parquet").write_bytes(b"damaged")
    whole.spool.write_bytes(header() + read_parts_of(range(3)))
    for attempt in (lambda: recover(whole, time_scale=2.0), lambda: read_updates(whole)):
        with pytest.raises(DamagedPartError, match=r"part-0000\.parquet: the part cannot be read"):
            attempt()
    assert len(part_paths(whole.updates)) == 2


def read_parts_of(versions: range) -> bytes:
    return np.array([row(version) for version in versions], UPDATE).tobytes()


CONTROLLER = """
import sys, time
from pathlib import Path
from testbed.telemetry.folder import RunFolder
from testbed.telemetry.record import Recorder
from testbed.telemetry.event_kinds import BroughtUp
from testbed.telemetry.rows import UpdateRow
from testbed.telemetry.spool import SpoolReader, SpoolWriter

folder = RunFolder.create(Path(sys.argv[1]), "r", scenario="s", text="", classes=["a"], now=0.0)
recorder = Recorder.into(folder, time_scale=1.0)
spool, reader = SpoolWriter(folder.spool, rows=1), SpoolReader(folder.spool)
values = dict.fromkeys(UpdateRow._fields, 0) | {"sequence": 1}
for version in range(12_000):
    spool.append(UpdateRow(**values | {"version_applied": version}))
recorder.updates(reader.read())
recorder.event(BroughtUp(1.0))
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_controller_that_is_really_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", CONTROLLER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as controller:
        assert controller.stdout is not None
        assert controller.stdout.readline() == b"ready\n"
        controller.kill()
    folder = RunFolder.open(tmp_path / "r")
    assert len(joined(read_parts(folder.updates))) == 10_000
    assert read_events(folder.events)[0].event == BroughtUp(1.0)
    assert recover(folder, time_scale=1.0).updates == 2_000
    assert np.array_equal(joined(read_parts(folder.updates))["version_applied"], np.arange(12_000))


def test_updates_lost_with_a_parameter_server_are_removed_and_recorded_once(
    killed: RunFolder,
) -> None:
    """Seven updates, evaluated at 2, 4 and 6; the next server resumes at 3 and runs to 5."""
    recover(killed, time_scale=2.0)
    follower = SpoolReader(killed.spool)
    assert len(follower.read()) == 7
    assert cut_spool(killed.spool, rows=3) == 4
    restored = Entry(2.0, 2.0, Restored(3, time_seconds=1.0, lost_updates=4))
    recorder = Recorder.into(killed, time_scale=2.0, clock=Clock(lambda: 0.0, lambda: 0.0))
    recorder.from_ps(restored)
    follower.rewind(rows=3)
    with closing(SpoolWriter(killed.spool)) as spool:
        spool.append(row(3))
        spool.append(row(4))
    recorder.updates(follower.read())
    recorder.from_ps(evaluated(5))
    recorder.close()
    assert joined(read_parts(killed.updates))["version_applied"].tolist() == [0, 1, 2, 3, 4]
    (spooled,) = spooled_rows(killed, over=True)
    assert spooled["version_applied"].tolist() == [0, 1, 2, 3, 4]
    rows = killed.evaluations.read_text().splitlines()[1:]
    assert [line.split(",")[2] for line in rows] == ["2", "5"]
    drop_torn_line(killed.ps_events)
    with killed.ps_events.open("a") as file:
        file.write(restored.line() + evaluated(5).line())
    assert recover(killed, time_scale=2.0) == Recovered()


def test_a_spool_that_is_shorter_than_its_checkpoint_is_refused(killed: RunFolder) -> None:
    with pytest.raises(TestbedError, match="found 7 updates, expected at least the 8"):
        cut_spool(killed.spool, rows=8)
