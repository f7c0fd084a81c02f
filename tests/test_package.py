"""The names that ``import testbed`` offers, and its cost."""

import subprocess
import sys
from pathlib import Path

import pytest

import testbed


def test_runs_are_read_through_the_package() -> None:
    from testbed.reports.frames import Run

    assert testbed.Run is Run


def test_every_offered_name_exists() -> None:
    for name in testbed.__all__:
        assert name in dir(testbed)
        assert getattr(testbed, name) is not None


def test_a_module_does_not_shadow_a_function() -> None:
    import testbed.run.up
    import testbed.simulation.run

    assert all(callable(one) for one in (testbed.up, testbed.simulate, testbed.runs))


def test_other_names_are_errors() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Runs'"):
        _ = testbed.Runs  # type: ignore[attr-defined]


def test_importing_the_package_imports_nothing_else() -> None:
    program = "import sys, testbed; print([m for m in sys.modules if m.startswith('testbed.')])"
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert ended.stdout == "[]\n"


def test_listing_runs_imports_nothing_heavy() -> None:
    program = (
        "import sys, testbed; testbed.runs(); testbed.up; testbed.Run;"
        "print([m for m in ('torch', 'grpc', 'docker', 'pyroute2') if m in sys.modules])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert ended.stdout == "[]\n"


@pytest.mark.slow
@pytest.mark.nightly  # mypy reads all of PyTorch first
def test_types_are_found_in_another_folder(tmp_path: Path) -> None:
    """Also of an editable install, which the tests usually use."""
    (tmp_path / "notes.py").write_text(
        "import testbed\n"
        "run: testbed.Run = testbed.simulate('a.yaml', settings={'seed': 1})\n"
        "valid: bool = run.verdict.valid\n"
        "runs: list[testbed.Run] = testbed.runs()\n"
        "testbed.up(3)\n"
    )
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "notes.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    first, *_ = checked.stdout.splitlines()
    assert first.startswith('notes.py:5: error: Argument 1 to "up" has incompatible type "int"')
    assert "Found 1 error in 1 file" in checked.stdout
