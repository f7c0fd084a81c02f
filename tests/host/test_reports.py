"""Reports of a starting process, and the end of its log."""

from pathlib import Path

from testbed.host.reports import read_tail


def test_the_tail_of_a_log_has_no_control_characters(tmp_path: Path) -> None:
    log = tmp_path / "w0.log"
    log.write_text("first\n\x1b]0;owned\x07last\tone\n")
    assert read_tail(log, lines=1) == ["\\x1b]0;owned\\x07last\tone"]
