"""Files are read while they are written: no partial lines, no duplicates."""

from __future__ import annotations

from pathlib import Path

from testbed.telemetry.files import LineReader


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
