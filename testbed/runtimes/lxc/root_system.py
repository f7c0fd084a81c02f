"""A user's own root file system, shown in containers in place of the host's programs.

It is bound read-only and not changed. The interpreter, the Python environment and this package are
the host's, at their own paths; what their folders contain otherwise is hidden.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from testbed.errors import ScenarioError
from testbed.runtimes.agent.interpreter import find_needs
from testbed.runtimes.agent.launch import HOSTS

FIELD = "runtime.lxc.rootfs"
OWN = tuple(Path("/") / name for name in ("proc", "sys", "dev", "tmp", "run"))
"""Folders that a container has of its own."""

SYSTEM = tuple(Path("/") / name for name in ("usr", "etc", "bin", "sbin", "lib", "lib32", "lib64"))
"""Those in which a system has its programs and settings."""

SLEEP = Path("/bin/sleep")
LOADERS = ("/lib64", "/lib")
"""Folders of the loader of glibc, with which the Python environment's packages are compiled."""

MOST_LINKS = 40
"""In a path, as for the kernel."""


@dataclass(frozen=True)
class RootSystem:
    """A folder with a root file system, such as one that mmdebstrap creates."""

    folder: Path

    def check(self) -> None:
        """Reject a folder without what a node needs, or in which that is closed to other users.

        Raises:
            ScenarioError: something is missing or closed; names it, and the fix.
        """
        if not self.folder.is_dir():
            raise ScenarioError.at(FIELD, repr(str(self.folder)), "a folder on this host")
        needed = [SLEEP, HOSTS]
        for tree in [trail.end for trail in find_needs().must]:
            if tree in SYSTEM:  # the interpreter is the system's, and so must be that of the nodes
                needed += [Path(sys.executable).resolve(), Path(sysconfig.get_path("stdlib"))]
            elif tree.parts[1] in {folder.name for folder in SYSTEM}:
                needed.append(tree)
        try:
            lacking = [str(path) for path in needed if not self.find(path).exists()]
        except PermissionError as error:
            raise self._closed(error.filename) from None
        loaders = (one for name in LOADERS for one in self.find(Path(name)).glob("ld-linux-*"))
        if not any(self.find(Path("/") / one.relative_to(self.folder)).exists() for one in loaders):
            lacking.append("/lib64/ld-linux-*.so.* (glibc)")
        if lacking:
            expected = f"a folder that also has {', '.join(dict.fromkeys(lacking))}"
            raise ScenarioError.at(FIELD, repr(str(self.folder)), expected)
        closed = (path for one in needed for path in self._passed(one) if not _is_open(path))
        if (first := next(closed, None)) is not None:
            raise self._closed(first)

    def _closed(self, path: object) -> ScenarioError:
        expected = f"every user to have access to {path} (chmod -R o+rX {self.folder})"
        return ScenarioError.at(FIELD, repr(str(self.folder)), expected)

    def find(self, path: Path) -> Path:
        """Return where a container's path is on the host; its links lead inside the folder."""
        here, ahead, links = self.folder, [*path.parts[1:]], 0
        while ahead:
            step = here / ahead.pop(0)
            if not step.is_symlink() or links == MOST_LINKS:
                here = step
                continue
            target, links = step.readlink(), links + 1
            inside = Path(os.path.normpath(Path("/") / here.relative_to(self.folder) / target))
            here, ahead = self.folder, [*inside.parts[1:], *ahead]
        return here

    def _passed(self, path: Path) -> Iterator[Path]:
        """Yield where a container's path is on the host, and the folders from the root to it."""
        found = self.find(path)
        yield from (one for one in reversed(found.parents) if self.folder in one.parents)
        yield found

    def has_place(self, tree: Path) -> bool:
        """Whether a path can be bound: it exists, or is in no folder of the system."""
        return self.find(tree).exists() or not any(folder in tree.parents for folder in SYSTEM)

    def shown(self, trees: Iterable[Path]) -> Iterator[tuple[Path, Path]]:
        """Yield what is bound and where: no folder in which the interpreter would have no place."""
        for entry in sorted(self.folder.iterdir()):
            target = Path("/") / entry.name
            inside = [tree for tree in trees if target in tree.parents]
            room = all(self.find(tree).exists() for tree in inside)
            if target not in OWN and room and entry.is_dir() and not entry.is_symlink():
                yield entry, target

    def links(self) -> Iterator[tuple[Path, str]]:
        """Yield the symbolic links in its root, and their targets."""
        for entry in sorted(self.folder.iterdir()):
            if entry.is_symlink():
                yield Path("/") / entry.name, str(entry.readlink())


def _is_open(path: Path) -> bool:
    """Return whether every user may read a file, or list and pass a folder."""
    wanted = 0o005 if path.is_dir() else 0o004
    return path.stat().st_mode & wanted == wanted
