"""The configuration of an LXC container for a node. Pure, except for what the host's paths are.

A container only provides the environment, as one of an engine does: the role is forked from the
agent's template into it. Its root file system has the host's programs and the interpreter, each
bound read-only at its own path.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from testbed.errors import NodeError
from testbed.runtimes.agent.interpreter import Needs, find_covers, find_needs
from testbed.runtimes.agent.launch import HOSTS, MOUNT_ROOT, Mount
from testbed.runtimes.agent.view import SCRATCH
from testbed.runtimes.base import HOSTNAME_BYTES, ContainerSpec
from testbed.runtimes.lxc.groups import PARENT, LxcGroups
from testbed.runtimes.lxc.root_system import OWN, SYSTEM, RootSystem
from testbed.values.topology import inodes

ROOT = Path("/")
NEW = (*SCRATCH, Path("/dev"))
"""Those that are empty until the container's own files and mounts are in them."""


@dataclass(frozen=True)
class View:
    """What a container shows of the host: paths, outer ones first, and symbolic links."""

    mounts: tuple[Mount, ...]
    links: tuple[tuple[Path, str], ...] = ()

    @classmethod
    def of(cls, spec: ContainerSpec, system: RootSystem | None = None) -> View:
        """Return the programs, what the interpreter needs, and the node's mounts.

        Args:
            spec: the node.
            system: whose programs; by default the host's.

        Raises:
            HostError: the interpreter is closed to the node's uid.
            NodeError: the source of a mount is missing; names it.
        """
        if system is not None:
            return cls._of_system(spec, system)
        programs = Needs.of(path for path in SYSTEM if path.exists())
        mine = find_needs()
        needs = Needs((*programs.must, *mine.must), mine.may)
        (cover,) = find_covers((ROOT,), spec.node.uid, needs)
        trees = (Mount(tree, tree) for tree in cover.trees)
        return cls((*trees, *shown(spec)), cover.links)

    @classmethod
    def _of_system(cls, spec: ContainerSpec, system: RootSystem) -> View:
        (cover,) = find_covers((ROOT,), spec.node.uid, find_needs())
        must = {trail.end for trail in find_needs().must}
        trees = [
            tree
            for tree in cover.trees
            if tree not in SYSTEM and (tree in must or system.has_place(tree))
        ]
        bound = [Mount(source, target) for source, target in system.shown(trees)]
        links = dict(cover.links) | dict(system.links())
        within = {mount.target for mount in bound}
        kept = {link: text for link, text in links.items() if not within & {*link.parents}}
        mounts = (*bound, *(Mount(tree, tree) for tree in trees), *shown(spec))
        return cls(mounts, tuple(sorted(kept.items())))

    @property
    def points(self) -> list[tuple[Path, bool]]:
        """The mount points in the root file system, and whether each is a folder."""
        targets = {mount.target for mount in self.mounts}
        return sorted(
            (mount.target, mount.source.is_dir())
            for mount in self.mounts
            if not targets & {*mount.target.parents}  # or it is in what is mounted there
        )

    @property
    def digest(self) -> str:
        """Of what ``build`` creates."""
        return hashlib.sha256(repr((self.points, self.links)).encode()).hexdigest()[:16]

    def build(self, root: Path) -> None:
        """Create a root file system with the mount points and links, all open to every user."""
        for folder in (*OWN, MOUNT_ROOT):
            (root / folder.relative_to(ROOT)).mkdir(parents=True, exist_ok=True)
        for target, is_folder in self.points:
            point = root / target.relative_to(ROOT)
            (point if is_folder else point.parent).mkdir(parents=True, exist_ok=True)
            if not is_folder:
                point.touch()
        for link, text in self.links:
            point = root / link.relative_to(ROOT)
            point.parent.mkdir(parents=True, exist_ok=True)
            point.symlink_to(text)
        for path in (root, *root.rglob("*")):
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o755)


def shown(spec: ContainerSpec) -> Iterator[Mount]:
    """Yield the mounts of a node, without /etc/hosts where the host has no such file."""
    for mount in spec.mounts:
        if not mount.source.exists():
            name = spec.node.name
            raise NodeError(f"{name}: mount: No such file or directory: {mount.source}.")
        if mount.target != HOSTS or HOSTS.is_file():
            yield mount


def configuration(
    spec: ContainerSpec, run: Path, root: Path, view: View, *, grouped: bool = True
) -> Sequence[str]:
    """Return the lines of a container's configuration.

    Args:
        spec: the node.
        run: the run folder.
        root: the container's root file system.
        view: what it shows of the host.
        grouped: whether it has control groups.
    """
    node, groups = spec.node, f"{PARENT}/{run.name}"
    size = ceil(node.scratch)
    scratch = f"nosuid,nodev,size={size},nr_inodes={inodes(size)},mode=1777"
    cover = f"lxc.mount.entry = tmpfs {_escape(run.relative_to(ROOT))} tmpfs ro,size=4k 0 0"
    covered = any(
        (mount.source / run.relative_to(mount.target)).exists()
        for mount in view.mounts
        if mount.target in run.parents
    )
    return (
        f"lxc.uts.name = {node.name[:HOSTNAME_BYTES]}",
        f"lxc.rootfs.path = dir:{root}",
        f"lxc.rootfs.mount = {root}",
        "lxc.rootfs.options = ro",
        "lxc.mount.auto = proc:rw sys:ro",
        f"lxc.mount.entry = tmpfs tmp tmpfs {scratch} 0 0",
        f"lxc.mount.entry = tmpfs dev/shm tmpfs {scratch},create=dir 0 0",
        *map(_bind, view.mounts),
        *([cover] if covered else []),  # contains files of other nodes
        "lxc.net.0.type = empty",
        "lxc.net.0.flags = up",
        f"lxc.sysctl.net.ipv4.ping_group_range = {node.uid} {node.uid}",
        f"lxc.init.uid = {node.uid}",
        f"lxc.init.gid = {node.uid}",
        "lxc.cap.keep = none",
        "lxc.no_new_privs = 1",
        "lxc.tty.max = 0",
        "lxc.pty.max = 1024",
        "lxc.console.path = none",
        "lxc.signal.halt = SIGTERM",
        *(_group_names(node.name, groups) if grouped else ()),
    )


def _group_names(node: str, groups: str) -> Sequence[str]:
    return (
        f"lxc.cgroup.dir.container = {groups}/{node}",
        f"lxc.cgroup.dir.monitor = {groups}/{LxcGroups.monitor(node)}",
        f"lxc.cgroup.dir.monitor.pivot = {groups}",
    )


def _bind(mount: Mount) -> str:
    options = "rbind" if mount.writable else "rbind,ro"
    if any(folder in mount.target.parents for folder in NEW):  # no mount point is there yet
        options += ",create=dir" if mount.source.is_dir() else ",create=file"
    source, target = _escape(mount.source.resolve()), _escape(mount.target.relative_to(ROOT))
    return f"lxc.mount.entry = {source} {target} none {options} 0 0"


def _escape(path: Path) -> str:
    """Return a path as in fstab."""
    text = str(path)
    for special in ("\\", " ", "\t", "\n"):
        text = text.replace(special, f"\\{ord(special):03o}")
    return text
