"""A run whose folder is deleted or full: the reported error, and what is still written."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from testbed.telemetry.event_kinds import BroughtUp, StateChanged
from testbed.telemetry.files import replacing, write_atomically
from testbed.telemetry.folder import RunFolder, find_deleted, folder_error, low_disk_space
from testbed.telemetry.parts import PartWriter
from testbed.telemetry.record import Recorder
from testbed.telemetry.rows import UPDATE

PENDING = np.zeros(3, UPDATE)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path, "r", scenario="s", text="", classes=[], now=0.0)


def missing(path: Path) -> OSError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))


def failure_of(act: Callable[[], None]) -> OSError:
    with pytest.raises(OSError) as failed:
        act()
    return failed.value


def test_an_active_run_has_no_missing_files(folder: RunFolder) -> None:
    assert find_deleted(folder) is None
    assert low_disk_space(folder) == ""


def test_a_folder_without_its_state_is_deleted(folder: RunFolder) -> None:
    folder.run_file.unlink()
    assert find_deleted(folder) == folder.path


@pytest.mark.parametrize("part", ["updates", "logs", "ps", "control"])
def test_a_missing_file_is_named(folder: RunFolder, part: str) -> None:
    shutil.rmtree(folder.path / part)
    assert find_deleted(folder) == folder.path / part


def test_a_failed_write_into_a_deleted_folder_is_reported_as_its_deletion(
    folder: RunFolder,
) -> None:
    """A deletion removes one file after the other: ``run.json`` may still exist."""
    writer = PartWriter(folder.updates)
    writer.add(PENDING, now=0.0)
    shutil.rmtree(folder.updates)
    failure = failure_of(writer.close)
    told = folder_error(folder, failure).message
    assert told == f"{folder.updates} was deleted while the run was active; the run was stopped."


def test_a_file_that_vanishes_before_it_is_put_in_place(folder: RunFolder) -> None:
    """Between writing a file and renaming it, in an existing folder."""

    def write() -> None:
        with replacing(folder.updates / "part") as fresh:
            fresh.touch()
            fresh.unlink()

    failure = failure_of(write)
    assert find_deleted(folder) is None
    assert f"{failure.filename} was deleted while" in folder_error(folder, failure).message


def test_a_missing_file_elsewhere_is_not_a_deletion(folder: RunFolder, tmp_path: Path) -> None:
    told = folder_error(folder, missing(tmp_path / "elsewhere")).message
    assert told == f"the run cannot continue: {tmp_path}/elsewhere: No such file or directory."


def test_a_full_disk_names_the_folder_and_what_to_do(folder: RunFolder) -> None:
    told = folder_error(folder, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    assert told.message == f"the run cannot continue: {folder.path}: No space left on device."
    assert "--runs" in told.hint


def test_space_in_a_deleted_folder_does_not_matter(folder: RunFolder) -> None:
    shutil.rmtree(folder.path)
    assert low_disk_space(folder) == ""


def test_a_failed_write_leaves_the_old_content_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_atomically(path, "{}")

    def write() -> None:
        with replacing(path) as fresh:
            fresh.write_text("half of")
            raise OSError(errno.ENOSPC, "full")

    failure_of(write)
    assert [one.name for one in tmp_path.iterdir()] == ["a.json"]
    assert path.read_text() == "{}"


def test_every_file_is_closed_even_if_updates_cannot_be_written(
    folder: RunFolder,
) -> None:
    recorder = Recorder.into(folder, time_scale=1.0)
    recorder.updates(PENDING)
    shutil.rmtree(folder.path)
    failure_of(recorder.close)
    with pytest.raises(ValueError, match="closed file"):
        recorder.event(BroughtUp(1.0))


def test_a_run_whose_last_updates_cannot_be_written_is_not_finished(
    folder: RunFolder,
) -> None:
    recorder = Recorder.into(folder, time_scale=1.0)
    recorder.updates(PENDING)
    shutil.rmtree(folder.updates)
    failure_of(lambda: recorder.event(StateChanged("finished")))
    failure_of(recorder.close)
    assert folder.state().state == "created"


def test_a_failure_takes_precedence_over_lost_records(folder: RunFolder) -> None:
    with (
        pytest.raises(KeyError, match="the failure"),
        Recorder.into(folder, time_scale=1.0) as recorder,
    ):
        recorder.updates(PENDING)
        shutil.rmtree(folder.path)
        raise KeyError("the failure")
