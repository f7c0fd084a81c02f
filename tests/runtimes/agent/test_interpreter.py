"""Which folders are hidden from a role's uid and which are mounted back, in a small tree."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.errors import HostError
from testbed.runtimes.agent.interpreter import Cover, Needs, Trail, find_covers, find_needs

STRANGER = 54321


@pytest.fixture
def top() -> Iterator[Path]:
    """A folder that every user can read, unlike pytest's own."""
    path = Path(tempfile.mkdtemp(dir="/var/tmp")).resolve()
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def _python_in(home: Path) -> Path:
    """An interpreter with an environment, as pyenv and venv lay them out; returns its command."""
    (home / "versions/3.11/bin").mkdir(parents=True)
    (home / "versions/3.11/bin/python3.11").touch(mode=0o755)
    (home / "versions/current").symlink_to("3.11")
    (home / "project/.venv/bin").mkdir(parents=True)
    command = home / "project/.venv/bin/python"
    command.symlink_to(home / "versions/current/bin/python3.11")
    return command


def test_a_trail_follows_relative_and_absolute_links(top: Path) -> None:
    command = _python_in(top)
    trail = Trail.to(command)
    assert trail.end == top / "versions/3.11/bin/python3.11"
    assert trail.links == (
        (command, str(top / "versions/current/bin/python3.11")),
        (top / "versions/current", "3.11"),
    )
    assert top / "project/.venv/bin" in trail.folders
    assert top / "versions/3.11/bin" in trail.folders
    assert trail.end not in trail.folders


def test_nothing_is_covered_where_every_folder_is_readable(top: Path) -> None:
    command = _python_in(top)
    assert find_covers((), STRANGER, Needs.of((command, top / "project"))) == ()


def test_a_closed_home_is_covered_and_the_needed_folders_are_mounted_back(top: Path) -> None:
    home = top / "home"
    command = _python_in(home)
    (home / "private").mkdir()
    home.chmod(0o700)
    must = (command, home / "project/.venv", home / "versions/current")
    assert find_covers((), STRANGER, Needs.of(must)) == (
        Cover(
            home,
            trees=(home / "project/.venv", home / "versions/3.11"),
            links=((home / "versions/current", "3.11"),),
        ),
    )


def test_the_owner_needs_no_cover(top: Path) -> None:
    home = top / "home"
    command = _python_in(home)
    home.chmod(0o700)
    assert find_covers((), os.getuid(), Needs.of((command,))) == ()


def test_only_the_outermost_closed_folder_is_covered(top: Path) -> None:
    home = top / "home"
    command = _python_in(home)
    (home / "project").chmod(0o700)
    home.chmod(0o700)
    (cover,) = find_covers((), STRANGER, Needs.of((command,), (home / "project/.venv",)))
    assert cover.folder == home
    assert cover.trees == (home / "project/.venv", home / "versions/3.11/bin/python3.11")


def test_needed_folders_in_a_covered_folder_are_mounted_back(top: Path) -> None:
    command = _python_in(top)
    other = top / "scratch"
    other.mkdir()
    (other / "lib").mkdir()
    covers = find_covers((other,), STRANGER, Needs.of((command,), (other / "lib", other)))
    assert covers == (Cover(other, trees=(other / "lib",)),)


def test_a_needed_closed_folder_is_an_error_that_says_how_to_fix_it(top: Path) -> None:
    package = top / "package"
    package.mkdir(mode=0o700)
    with pytest.raises(HostError, match=f"chmod -R go\\+rX {package}"):
        find_covers((), STRANGER, Needs.of((package,)))
    assert find_covers((), STRANGER, Needs.of((), (package,))) == ()


def test_this_interpreter_needs_its_prefixes_and_this_package() -> None:
    needs = find_needs()
    must = {trail.end for trail in needs.must}
    needed = {Path(sys.prefix), Path(sys.base_prefix), Path(sys.executable)}
    assert {path.resolve() for path in needed} < must
    assert any((path / "scenario").is_dir() for path in must)
    assert all(trail.end.exists() for trail in needs.may)


def test_the_whole_clone_is_never_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """With an editable installation, and with a command typed in the clone."""
    root = Path(__file__).parents[3]
    monkeypatch.syspath_prepend(root)
    needs = find_needs()
    must, may = ({trail.end for trail in trails} for trails in (needs.must, needs.may))
    assert root / "testbed" in must
    assert root not in must | may
