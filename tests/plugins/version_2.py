"""Control groups of version 2, and a part of their tree that a user may divide."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from testbed.host import syscalls
from testbed.host.hierarchies import find_hierarchies

MOUNT = Path("/sys/fs/cgroup")
CONTROLLERS = {"cpu", "cpuset", "memory", "pids"}


@contextmanager
def version_2() -> Iterator[Path]:
    """The mount point of version 2, mounted if no groups are; other hosts skip the test."""
    mine = "cgroup" not in Path("/proc/self/mounts").read_text()
    if mine:
        syscalls.mount("none", str(MOUNT), "cgroup2")
    try:
        found = find_hierarchies()
        if {tree.version for tree in found} != {2}:
            pytest.skip("needs control groups version 2, but this host uses version 1")
        yield found[0].root
    finally:
        if mine:
            subprocess.run(["umount", MOUNT], check=True)


@contextmanager
def delegated_part(root: Path, user: str) -> Iterator[Path]:
    """A group of the user; in the end, there must be no groups left in it."""
    found = CONTROLLERS.intersection((root / "cgroup.controllers").read_text().split())
    (root / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in found))
    part = root / f"delegated-{user}"
    part.mkdir()
    names = ("procs", "subtree_control", "threads")
    for path in (part, *(part / f"cgroup.{name}" for name in names)):
        shutil.chown(path, user)
    yield part
    assert [path.name for path in part.iterdir() if path.is_dir()] == []
    part.rmdir()
