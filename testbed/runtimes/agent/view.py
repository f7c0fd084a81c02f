"""A node's view of the file system: the host's, read-only, without other nodes' files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from math import ceil
from pathlib import Path

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
TERMINALS = Path("/dev/pts")
TMPFS_FLAGS = syscalls.MS_NOSUID | syscalls.MS_NODEV
TERMINAL_FLAGS = syscalls.MS_NOSUID | syscalls.MS_NOEXEC


def make_view(
    mounts: Sequence[Mount],
    uid: int,
    *,
    needs: Needs,
    run_folder: Path,
    private: Sequence[Path] = (),
    scratch: Size = DEFAULT_SCRATCH,
) -> None:
    """Change what this process's mount namespace shows; no mount in it may propagate to another.

    Args:
        mounts: what is shown below /run/testbed, at its own path, and as /etc/hosts where the host
            has that file.
        uid: the role's; determines which paths of the interpreter are closed to it.
        needs: the files that the interpreter uses.
        run_folder: hidden, because it contains files of other nodes.
        private: folders that are covered too, except what the interpreter needs of them.
        scratch: the capacity of each folder in SCRATCH.

    Raises:
        HostError: the interpreter is closed to the uid, or the kernel is too old.
        OSError: a source is missing, or a mount fails; names it.
    """
    hidden = (folder for folder in private if folder.is_dir())
    covers = find_covers((*SCRATCH, MOUNT_ROOT.parent, *hidden), uid, needs)
    # Opened before anything is covered: from then on only these descriptors reach the sources.
    shown = [mount for mount in mounts if mount.target != HOSTS or HOSTS.is_file()]
    sources = _open(mount.source for mount in shown)
    trees = _open(tree for cover in covers for tree in cover.trees)
    syscalls.mount("proc", "/proc", "proc", flags=syscalls.PROC_FLAGS)
    # A separate mount, so that it stays read-only: its network settings belong to uid 0 in here.
    syscalls.mount("/proc/sys", "/proc/sys", flags=syscalls.MS_BIND)
    for cover in covers:
        _put_up(cover, trees, scratch)
    for mount in shown:
        _bind(sources[mount.source], mount.target)
    if TERMINALS.is_dir():
        # With the user's uid, a node could open the user's own terminals.
        options = f"newinstance,ptmxmode=666,mode=620,uid={uid},gid={uid}"
        syscalls.mount("devpts", str(TERMINALS), "devpts", flags=TERMINAL_FLAGS, data=options)
    if run_folder.is_dir():
        syscalls.mount("tmpfs", str(run_folder), "tmpfs", flags=TMPFS_FLAGS, data=COVER_OPTIONS)
    for descriptor in (*sources.values(), *trees.values()):
        os.close(descriptor)
    syscalls.seal("/")
    for writable in (Path("/proc"), *SCRATCH, *(m.target for m in mounts if m.writable)):
        syscalls.make_writable(str(writable))


def _open(paths: Iterable[Path]) -> dict[Path, int]:
    return {path: os.open(path, os.O_PATH | os.O_CLOEXEC) for path in paths}


def _put_up(cover: Cover, trees: dict[Path, int], scratch: Size) -> None:
    size = ceil(scratch)
    of_scratch = f"size={size},nr_inodes={inodes(size)},mode=1777"
    closed = cover.folder not in (*SCRATCH, MOUNT_ROOT.parent)
    options = CLOSED_OPTIONS if closed else COVER_OPTIONS
    if cover.folder in SCRATCH:
        options = of_scratch
    syscalls.mount("tmpfs", str(cover.folder), "tmpfs", flags=TMPFS_FLAGS, data=options)
    mask = os.umask(CLOSED_MASK if closed else 0o022)
    for link, target in cover.links:
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)
    for tree in cover.trees:
        _bind(trees[tree], tree)
    os.umask(mask)
    root = PACKAGE.parent
    if cover.folder in (root, *root.parents) and not {*cover.trees} & {root, *root.parents}:
        root.chmod(0o755)  # Python lists the folders in which it looks for modules


def _bind(descriptor: int, target: Path) -> None:
    """Bind-mount what a descriptor refers to at another path, which is created."""
    source = f"/proc/self/fd/{descriptor}"
    if Path(source).is_dir():
        target.mkdir(parents=True, exist_ok=True)
    elif not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    syscalls.mount(source, str(target), flags=syscalls.MS_BIND | syscalls.MS_REC)
