"""A node's view of the file system: the host's, read-only, without other nodes' files.

The agent works it out, as plain data, and the node only makes it: what a node executes and touches
before its role begins stays in its memory, and pathlib alone is 0.2 MiB of that.
"""

# ruff: noqa: PTH101, PTH103, PTH110, PTH112, PTH120, PTH211

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

from testbed.host import syscalls
from testbed.runtimes.agent.interpreter import PACKAGE, Cover, Needs, find_covers
from testbed.runtimes.agent.launch import HOSTS, MOUNT_ROOT, Mount
from testbed.values.topology import SCRATCH as DEFAULT_SCRATCH
from testbed.values.topology import inodes
from testbed.values.units import Size

SCRATCH = (Path("/tmp"), Path("/dev/shm"))
"""Where a node may write, into a tmpfs of its own."""

COVER_OPTIONS = "size=1m,mode=755"
CLOSED_OPTIONS = "size=1m,mode=111"
"""Mode of the mount point over a private folder: it can be traversed, but not listed."""
CLOSED_MASK = 0o666
TERMINALS = "/dev/pts"
TMPFS_FLAGS = syscalls.MS_NOSUID | syscalls.MS_NODEV
TERMINAL_FLAGS = syscalls.MS_NOSUID | syscalls.MS_NOEXEC


class PlannedCover(NamedTuple):
    """A tmpfs over a folder, and what is shown in it again; see Cover."""

    folder: str
    options: str  # of the tmpfs
    mask: int  # file mode mask for what is created in it
    links: tuple[tuple[str, str], ...]
    trees: tuple[str, ...]
    opened: str  # a folder in it that must be readable; empty for none


class View(NamedTuple):
    """What a mount namespace shows: strings, numbers and tuples only."""

    covers: tuple[PlannedCover, ...]
    shown: tuple[tuple[str, str], ...]  # sources and targets
    terminals: str  # options of the node's own devpts; empty if the host has none
    hidden: str  # the run folder, unless a cover hides it already
    writable: tuple[str, ...]

    @classmethod
    def plan(
        cls,
        mounts: Sequence[Mount],
        uid: int,
        *,
        needs: Needs,
        run_folder: Path,
        private: Sequence[Path] = (),
        scratch: Size = DEFAULT_SCRATCH,
    ) -> View:
        """Work out what a node sees.

        Args:
            mounts: what is shown below /run/testbed, at its own path, and as /etc/hosts where the
                host has that file.
            uid: the role's; determines which paths of the interpreter are closed to it.
            needs: the files that the interpreter uses.
            run_folder: hidden, because it contains files of other nodes.
            private: folders that are covered too, except what the interpreter needs of them.
            scratch: the capacity of each folder in SCRATCH.

        Raises:
            HostError: the interpreter is closed to the uid.
        """
        private = [folder for folder in private if folder.is_dir()]
        covers = find_covers((*SCRATCH, MOUNT_ROOT.parent, *private), uid, needs)
        shown = [mount for mount in mounts if mount.target != HOSTS or HOSTS.is_file()]
        # With the user's uid, a node could open the user's own terminals.
        terminals = f"newinstance,ptmxmode=666,mode=620,uid={uid},gid={uid}"
        return cls(
            tuple(_planned(cover, scratch) for cover in covers),
            tuple((str(mount.source), str(mount.target)) for mount in shown),
            terminals if os.path.isdir(TERMINALS) else "",
            str(run_folder),
            ("/proc", *map(str, SCRATCH), *(str(m.target) for m in mounts if m.writable)),
        )

    @classmethod
    def of(cls, plain: tuple[Any, ...]) -> View:
        """Return the view of these plain tuples."""
        covers, *rest = plain
        return cls(tuple(PlannedCover(*cover) for cover in covers), *rest)

    def make(self) -> None:
        """Change this process's mount namespace; no mount in it may propagate to another.

        Raises:
            HostError: the kernel is too old.
            OSError: a source is missing, or a mount fails; names it.
        """
        # Opened before anything is covered: from then on only these descriptors reach the sources.
        sources = _open(source for source, _ in self.shown)
        trees = _open(tree for cover in self.covers for tree in cover.trees)
        syscalls.mount("proc", "/proc", "proc", flags=syscalls.PROC_FLAGS)
        # A separate mount, so that it stays read-only: its network settings belong to uid 0 here.
        syscalls.mount("/proc/sys", "/proc/sys", flags=syscalls.MS_BIND)
        for cover in self.covers:
            _put_up(cover, trees)
        for source, target in self.shown:
            _bind(sources[source], target)
        if self.terminals:
            syscalls.mount("devpts", TERMINALS, "devpts", flags=TERMINAL_FLAGS, data=self.terminals)
        if os.path.isdir(self.hidden):
            syscalls.mount("tmpfs", self.hidden, "tmpfs", flags=TMPFS_FLAGS, data=COVER_OPTIONS)
        for descriptor in (*sources.values(), *trees.values()):
            os.close(descriptor)
        syscalls.seal("/")
        for writable in self.writable:
            syscalls.make_writable(writable)


def _planned(cover: Cover, scratch: Size) -> PlannedCover:
    closed = cover.folder not in (*SCRATCH, MOUNT_ROOT.parent)
    options = CLOSED_OPTIONS if closed else COVER_OPTIONS
    if cover.folder in SCRATCH:
        size = ceil(scratch)
        options = f"size={size},nr_inodes={inodes(size)},mode=1777"
    root = PACKAGE.parent
    # Python lists the folders in which it looks for modules.
    above = {root, *root.parents}
    lists = cover.folder in above and not {*cover.trees} & above
    return PlannedCover(
        str(cover.folder),
        options,
        CLOSED_MASK if closed else 0o022,
        tuple((str(link), target) for link, target in cover.links),
        tuple(map(str, cover.trees)),
        str(root) if lists else "",
    )


def _open(paths: Iterable[str]) -> dict[str, int]:
    return {path: os.open(path, os.O_PATH | os.O_CLOEXEC) for path in paths}


def _put_up(cover: PlannedCover, trees: dict[str, int]) -> None:
    syscalls.mount("tmpfs", cover.folder, "tmpfs", flags=TMPFS_FLAGS, data=cover.options)
    mask = os.umask(cover.mask)
    for link, target in cover.links:
        os.makedirs(os.path.dirname(link), exist_ok=True)
        os.symlink(target, link)
    for tree in cover.trees:
        _bind(trees[tree], tree)
    os.umask(mask)
    if cover.opened:
        os.chmod(cover.opened, 0o755)


def _bind(descriptor: int, target: str) -> None:
    """Bind-mount what a descriptor refers to at another path, which is created."""
    source = f"/proc/self/fd/{descriptor}"
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    elif not os.path.exists(target):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_CLOEXEC, 0o666))
    syscalls.mount(source, target, flags=syscalls.MS_BIND | syscalls.MS_REC)
