from __future__ import annotations

import fcntl
import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from testbed.errors import DataError, RunNotFound
from testbed.reports.frames import Run
from testbed.reports.remake import remake
from testbed.telemetry.entry import Entry
from testbed.telemetry.folder import RunFolder
from testbed.telemetry.parts import read_parts
from testbed.telemetry.ps_events import Restored
from testbed.telemetry.record import Recorder
from testbed.telemetry.rows import UpdateRow, joined
from testbed.telemetry.spool import SpoolWriter

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def killed(folder: RunFolder) -> RunFolder:
    """The small run, as if its controller had been killed with updates still in memory."""
    rows = joined(read_parts(folder.updates))
    with closing(SpoolWriter(folder.spool)) as spool:
        for row in rows:
            spool.append(UpdateRow(*row.item()))
    (folder.updates / "part-0000.parquet").unlink()
    content = json.loads(folder.run_file.read_text())
    folder.run_file.write_text(json.dumps(content | {"state": "training", "ended": None}))
    return folder


def test_summary_and_figure(folder: RunFolder) -> None:
    report = remake(folder.path)
    assert not report.recovered
    assert report.figure == folder.figure
    assert folder.figure.read_bytes().startswith(PNG)
    assert json.loads(folder.summary.read_text()) == report.summary


def test_a_run_with_a_killed_controller(killed: RunFolder) -> None:
    assert len(Run(killed.path).updates) == 6  # even before the recovery
    report = remake(killed.path)
    assert report.recovered.updates == 6
    assert len(joined(read_parts(killed.updates))) == 6
    assert report.summary["updates"]["total"] == 6
    assert report.summary["state"] == "training"
    assert report.summary["verdict"]["reasons"][0] == (
        "The run did not finish: its controller died in state training. Run the scenario again."
    )


def test_an_active_run_gets_a_figure_but_no_summary_yet(killed: RunFolder) -> None:
    with killed.lock.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        report = remake(killed.path)
    assert report.summary["verdict"]["reasons"][0] == "The run is still active."
    assert report.summary["updates"]["total"] == 6
    assert report.figure is not None
    assert not killed.summary.exists()
    assert len(joined(read_parts(killed.updates))) == 0


def test_an_ended_run_is_not_active_while_its_lock_is_still_held(
    folder: RunFolder,
) -> None:
    with folder.lock.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        report = remake(folder.path)
    assert "The run is still active." not in report.summary["verdict"]["reasons"]
    assert folder.summary.exists()


def test_without_an_evaluation_there_is_no_figure(make_run: Callable[..., RunFolder]) -> None:
    folder = make_run()
    folder.evaluations.unlink()
    lines = folder.events.read_text().splitlines(keepends=True)
    folder.events.write_text("".join(line for line in lines if '"event": "evaluated"' not in line))
    report = remake(folder.path)
    assert report.figure is None
    assert not folder.figure.exists()


def test_a_shortened_table_of_evaluations_is_no_result(folder: RunFolder) -> None:
    remake(folder.path)
    before = folder.summary.read_bytes()
    header, *rows = folder.evaluations.read_text().splitlines(keepends=True)
    folder.evaluations.write_text("".join([header, *rows[:-2], rows[-2][:9]]))
    with pytest.raises(DataError) as caught:
        remake(folder.path)
    assert caught.value.message == (
        f"{folder.evaluations}: found {len(rows) - 2} evaluations, expected {len(rows)}, as in "
        "events.jsonl."
    )
    assert folder.summary.read_bytes() == before


@pytest.mark.parametrize("lost", ["part-0000.parquet", "."])
def test_a_finished_run_without_its_updates_is_no_result(folder: RunFolder, lost: str) -> None:
    remake(folder.path)
    before = folder.summary.read_bytes()
    part = folder.updates / "part-0000.parquet"
    part.unlink()
    if lost == ".":
        folder.updates.rmdir()
    for write in (True, False):
        with pytest.raises(DataError) as caught:
            remake(folder.path, write=write)
        assert caught.value.message == (
            f"{part} is missing: found 0 updates, expected 6, as in events.jsonl."
        )
    assert folder.summary.read_bytes() == before
    assert folder.updates.exists() == (lost != ".")


def test_an_interrupted_run_without_its_last_updates_is_readable(folder: RunFolder) -> None:
    folder.move("interrupted", now=0.0)
    (folder.updates / "part-0000.parquet").unlink()
    assert remake(folder.path).summary["updates"]["total"] == 0


def test_a_run_that_died_between_an_evaluation_and_its_row(killed: RunFolder) -> None:
    lines = killed.evaluations.read_text().splitlines(keepends=True)
    killed.evaluations.write_text("".join(lines[:-1]))
    assert remake(killed.path).summary["evaluations"] == len(lines) - 2


def test_evaluations_that_were_lost_with_a_server_have_no_rows(folder: RunFolder) -> None:
    with Recorder.into(folder, time_scale=2.0) as recorder:
        recorder.from_ps(Entry(1.0, 1.0, Restored(version=0, time_seconds=0.0, lost_updates=0)))
    rows = folder.evaluations.read_text().splitlines()[1:]
    assert all(row.split(",")[2] == "0" for row in rows)
    assert remake(folder.path).summary["evaluations"] == len(rows)


def test_nothing_is_written_on_request(folder: RunFolder) -> None:
    before = sorted(folder.path.iterdir())
    report = remake(folder.path, write=False)
    assert report.summary["updates"]["total"] == 6
    assert report.figure is None
    assert sorted(folder.path.iterdir()) == before


def test_no_run(tmp_path: Path) -> None:
    with pytest.raises(RunNotFound):
        remake(tmp_path)


@pytest.mark.slow
def test_libraries_are_fully_imported_when_the_report_is_made() -> None:
    code = """
import sys, threading
from testbed.reports.remake import LIBRARIES, libraries_imported
with libraries_imported():
    assert threading.active_count() == 2  # beside what is done meanwhile
assert threading.active_count() == 1
assert set(LIBRARIES) <= sys.modules.keys()
"""
    subprocess.run([sys.executable, "-c", code], check=True)
