"""The output of nodes, of an ended run and of an active one."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from testbed.run.follow import Line, follow_logs, read_logs, wait_for_end
from testbed.runtimes.lock import controlling
from testbed.telemetry.folder import RunFolder


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path, "r1", scenario="quick", text="", classes=["fast"], now=0.0)


def test_nodes_are_shown_one_after_the_other(folder: RunFolder) -> None:
    folder.log("w0").write_text("zero\nhalf")
    folder.log("ps").write_text("first\n")
    assert list(read_logs(folder, ["ps", "evaluator", "w0"])) == [
        Line("ps", "first"),
        Line("w0", "zero"),
        Line("w0", "half"),
    ]


def test_following_ends_with_the_run_and_loses_nothing(folder: RunFolder) -> None:
    lock = os.open(folder.lock, os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with folder.log("w0").open("a", buffering=1) as log:
        log.write("one\ntw")
        log.flush()
        lines = follow_logs(folder, ["w0"])
        assert next(lines) == Line("w0", "one")
        log.write("o\nlast words")
    os.close(lock)
    assert list(lines) == [Line("w0", "two"), Line("w0", "last words")]


def test_a_run_is_awaited_until_its_report_is_written_by_a_process_that_lives_on(
    folder: RunFolder,
) -> None:
    folder.move("finished", now=1.0)
    with controlling(folder):
        assert wait_for_end(folder, timeout_seconds=0.0) is None
    ended = wait_for_end(folder, timeout_seconds=0.0)
    assert ended is not None
    assert ended.state == "finished"
