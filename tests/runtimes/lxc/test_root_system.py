"""A root file system of the user: what nodes see of it, and what it must contain."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import ScenarioError
from testbed.runtimes.lxc.driver import LxcDriver
from testbed.runtimes.lxc.root_system import RootSystem

PROGRAMS = ("/bin/sh", "/bin/sleep", "/bin/cat")


@pytest.fixture
def system(tmp_path: Path) -> RootSystem:
    """A root file system with three programs, their libraries and a file."""
    if sys.base_prefix == "/usr":
        pytest.skip("needs an interpreter outside /usr, or the nodes' system must contain it")
    folder = tmp_path / "rootfs"
    linked = (subprocess.check_output(["ldd", program], text=True) for program in PROGRAMS)
    libraries = {word for text in linked for word in text.split() if word.startswith("/")}
    for file in (*PROGRAMS, *libraries):
        copy = folder / file.lstrip("/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, copy)
    (folder / "etc").mkdir()
    (folder / "etc/hosts").touch()
    (folder / "etc/own").write_text("of the folder\n")
    (folder / "opt").symlink_to("etc")
    return RootSystem(folder)


@pytest.fixture
def driver(lxc: LxcDriver, system: RootSystem) -> LxcDriver:
    return replace(lxc, system=system)


@pytest.mark.root
def test_a_node_has_the_programs_of_the_folder(
    start_run: Any, system: RootSystem, capfd: pytest.CaptureFixture[str]
) -> None:
    system.check()
    with start_run() as run:
        run.launch("w1", "entries:wait")
        assert run.exec("w1", "cat", "/opt/own") == 0
        assert run.exec("w1", "ls") == 127  # the host's
        assert run.exec("w1", "sh", "-c", "echo x > /etc/own") == 2
    assert capfd.readouterr().out == "of the folder\n"
    assert (system.folder / "etc/own").read_text() == "of the folder\n"


@pytest.mark.parametrize(
    ("removed", "named"),
    [
        ("bin/sleep", "a folder that also has /bin/sleep"),
        ("etc/hosts", "a folder that also has /etc/hosts"),
        ("", "a folder on this host"),
    ],
)
def test_a_folder_without_what_a_node_needs_is_refused(
    system: RootSystem, removed: str, named: str
) -> None:
    path = system.folder / removed
    path.unlink() if removed else shutil.rmtree(path)
    with pytest.raises(ScenarioError) as refusal:
        system.check()
    (problem,) = refusal.value.problems
    assert (problem.path, problem.expected) == ("runtime.lxc.rootfs", named)


@pytest.mark.parametrize(
    ("closed", "mode"), [("etc", 0o750), ("etc/hosts", 0o640), ("bin", 0o751), ("bin/sleep", 0o750)]
)
def test_a_folder_that_other_users_cannot_read_is_refused(
    system: RootSystem, closed: str, mode: int
) -> None:
    """The nodes have users of their own. Above the folder, nothing matters."""
    system.folder.chmod(0o700)
    system.check()
    (system.folder / closed).chmod(mode)
    with pytest.raises(ScenarioError) as refusal:
        system.check()
    (problem,) = refusal.value.problems
    expected = f"every user to have access to {system.folder / closed} (chmod -R o+rX "
    assert (problem.path, problem.expected) == ("runtime.lxc.rootfs", f"{expected}{system.folder})")


def test_links_lead_inside_the_folder(system: RootSystem) -> None:
    sleep = system.folder / "bin/sleep"
    (system.folder / "usr/bin").mkdir(parents=True, exist_ok=True)
    sleep.rename(system.folder / "usr/bin/of-the-folder")
    sleep.symlink_to("/usr/bin/of-the-folder")
    system.check()
    sleep.unlink()
    sleep.symlink_to("/usr/bin/env")  # the host has it
    with pytest.raises(ScenarioError, match="/bin/sleep"):
        system.check()


def test_a_folder_without_glibc_is_refused(system: RootSystem) -> None:
    shutil.rmtree(system.folder / "lib64", ignore_errors=True)
    for loader in system.folder.glob("lib/ld-linux-*"):
        loader.unlink()
    with pytest.raises(ScenarioError, match="glibc"):
        system.check()
