"""What ``import testbed`` offers, and what it costs."""

import subprocess
import sys

import pytest

import testbed


def test_runs_are_read_through_the_package() -> None:
    from testbed.reports.frames import Run

    assert testbed.Run is Run


def test_other_names_are_none_of_its() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Runs'"):
        _ = testbed.Runs  # type: ignore[attr-defined]


def test_importing_it_imports_nothing_else() -> None:
    program = "import sys, testbed; print([m for m in sys.modules if m.startswith('testbed.')])"
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert ended.stdout == "[]\n"
