"""Contents of a log whose limits are a few bytes instead of megabytes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from testbed.runtimes.agent import logs
from testbed.runtimes.agent.logs import Log, Logs, is_full

SAYS = b"\n[testbed] no more.\n"


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Logs that hold ten bytes, and the last four beyond."""
    monkeypatch.setattr(logs, "LOG_BYTES", 10)
    monkeypatch.setattr(logs, "TAIL_BYTES", 4)
    monkeypatch.setattr(logs, "NOTICE", SAYS)
    return tmp_path / "w0.log"


def test_output_can_be_read_as_soon_as_it_was_printed(tmp_path: Path) -> None:
    path, kept = tmp_path / "w0.log", Logs()
    writer = kept.open(path)
    # More than the pipe holds, so that the thread has to take part.
    text = b"x" * 300_000
    left = text
    while left:
        left = left[os.write(writer, left) :]
    kept.catch_up(path)
    assert path.read_bytes() == text
    # A second role of the same node, at the same time.
    second = kept.open(path)
    os.write(second, b"second")
    os.write(writer, b"first")
    kept.catch_up_all()
    assert {path.read_bytes()[len(text) :]} <= {b"secondfirst", b"firstsecond"}
    for descriptor in (writer, second):
        os.close(descriptor)


def test_a_full_log_has_one_notice_and_the_end_of_the_output(path: Path) -> None:
    log, writer = Log.open(path)
    # 6 + 4 bytes fill it; the 11th is one too many.
    for text, there in (
        (b"123456", b"123456"),
        (b"7890", b"1234567890"),
        (b"x", b"1234567890" + SAYS),
        (b"yz", b"1234567890" + SAYS),
    ):
        os.write(writer, text)
        assert log.copy() == len(text)
        assert path.read_bytes() == there
        assert is_full(path) == (there.endswith(SAYS))
    os.close(writer)
    assert log.copy() == 0
    log.close()
    assert path.read_bytes() == b"1234567890" + SAYS + b"xyz"
    # Another role of the node continues in the log where the first ended: of "again", four remain.
    log, writer = Log.open(path)
    os.write(writer, b"again")
    assert log.copy() == 5
    assert path.read_bytes() == b"1234567890" + SAYS + b"xyz"
    os.close(writer)
    log.close()
    assert path.read_bytes() == b"1234567890" + SAYS + b"xyz" + b"gain"


def test_text_across_the_limit_is_truncated(path: Path) -> None:
    log, writer = Log.open(path)
    os.write(writer, b"123456789012345")
    log.copy()
    with pytest.raises(BlockingIOError):
        log.copy()
    assert path.read_bytes() == b"1234567890" + SAYS
    os.close(writer)
    log.close()
    assert path.read_bytes() == b"1234567890" + SAYS + b"2345"


def test_a_full_disk_does_not_stop_a_node() -> None:
    log, writer = Log.open(Path("/dev/full"))
    for _ in range(2):
        os.write(writer, b"text")
        assert log.copy() == 4
    os.close(writer)
    log.close()


def test_without_a_log_no_node_has_exceeded_its_limit(tmp_path: Path) -> None:
    assert not is_full(tmp_path / "missing.log")
