"""Files are read while they are written: no partial lines, no duplicates."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from testbed.errors import HostError
from testbed.telemetry.files import LineReader, replacing, write_atomically, writing


def test_a_missing_file_has_no_lines(tmp_path: Path) -> None:
    lines = LineReader(tmp_path / "log")
    assert lines.read() == []
    (tmp_path / "log").write_text("one\n")
    assert lines.read() == [b"one"]


def test_a_line_is_read_once_and_only_when_complete(tmp_path: Path) -> None:
    lines = LineReader(tmp_path / "log")
    with (tmp_path / "log").open("w", buffering=1) as log:
        log.write("one\ntw")
        log.flush()
        assert lines.read() == [b"one"]
        log.write("o\nthree")
        log.flush()
        assert lines.read() == [b"two"]
    assert lines.read(whole=True) == [b"three"]
    assert lines.read(whole=True) == []


def test_an_error_of_the_system_names_the_file_and_not_the_temporary_one(tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "x.html"
    with pytest.raises(FileNotFoundError) as caught:
        write_atomically(path, "")
    assert caught.value.filename == str(path)
    full = OSError(errno.ENOSPC, "No space left on device")  # as `write` raises it: without a name
    with pytest.raises(OSError, match="No space") as caught_full, replacing(tmp_path / "x"):
        raise full
    assert caught_full.value.filename == str(tmp_path / "x")


def test_output_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "x"
    with pytest.raises(HostError) as caught, writing(path):
        write_atomically(path, "")
    assert caught.value.message == f"{path}: it cannot be written: Not a directory."
    with pytest.raises(HostError, match="No space") as full, writing(path):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert full.value.hint == "Free disk space, or choose another path."


def test_an_error_of_another_file_is_none_of_the_output(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), writing(tmp_path / "out"):
        (tmp_path / "run" / "events.jsonl").read_text()
