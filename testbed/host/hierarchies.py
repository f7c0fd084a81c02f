"""The control group hierarchies of this host: version 1, version 2, or each for some controllers.

The controller ``cpuset`` is special: groups start empty, CPUs may be missing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.errors import HostError
from testbed.host.limits import Version
from testbed.values.cpu_sets import CpuSet

CONTROLLERS = ("cpu", "memory", "freezer", "pids")
USED = frozenset((*CONTROLLERS, "cpuset", "cpuacct"))
"""Controllers that runs can use: all runs need CONTROLLERS; cpuset is needed only if the scenario
sets a `cpuset`. cpuacct counts CPU time in version 1; in version 2 every group does."""

MOUNTS = Path("/proc/self/mountinfo")
OWN_GROUPS = Path("/proc/self/cgroup")

KINDS: Mapping[str, Version] = {"cgroup": 1, "cgroup2": 2}
"""File system types of control groups."""

OUTSIDE = "testbed-outside"
"""Child group for the processes of a delegated group: the kernel enables controllers for the
children of a group only if the group itself has no processes."""

DELEGATED = ("cgroup.procs", "cgroup.subtree_control")

INHERITED = ("cpuset.mems", "cpuset.cpus")
USABLE = {1: "cpuset.effective_cpus", 2: "cpuset.cpus.effective"}


@dataclass(frozen=True)
class Hierarchy:
    """One mounted tree of control groups, or the user's part of it.

    Attributes:
        root: mount point, or the root of the user's part.
        controllers: those of USED that it has.
    """

    root: Path
    version: Version
    controllers: frozenset[str]


@dataclass(frozen=True)
class Mounted:
    """A mounted tree of control groups, according to mountinfo.

    Attributes:
        point: mount point.
        shown: the group that is mounted there.
        options: mount options; in version 1 they include the controllers.
    """

    point: Path
    shown: Path
    version: Version
    options: frozenset[str]

    def find(self, group: str) -> Path | None:
        """Return the path of a group of this tree; None if another part of the tree is mounted."""
        try:
            return self.point / Path(group).relative_to(self.shown)
        except ValueError:
            return None


def find_mounted(mounts: Path = MOUNTS) -> list[Mounted]:
    """Return every tree of control groups that is mounted here."""
    found = []
    for line in mounts.read_text().splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        if kind in KINDS:
            shown, point = map(Path, before.split()[3:5])
            found.append(Mounted(point, shown, KINDS[kind], frozenset(options.split(","))))
    return found


def find_hierarchies(mounts: Path = MOUNTS) -> tuple[Hierarchy, ...]:
    """Return the hierarchies with the controllers in USED, each controller in one of them.

    Raises:
        HostError: one of CONTROLLERS is missing.
    """
    homes: dict[str, Mounted] = {}
    # A controller that version 1 has claimed is not available to version 2.
    for tree in sorted(find_mounted(mounts), key=lambda tree: tree.version):
        found = tree.options & USED if tree.version == 1 else _controllers(tree.point)
        for controller in found:
            homes.setdefault(controller, tree)
    missing = [controller for controller in CONTROLLERS if controller not in homes]
    if missing:
        raise HostError(
            f"this host has no control groups for {', '.join(missing)}.",
            hint="Mount them (`mount -t cgroup2 none /sys/fs/cgroup`), or boot with them enabled.",
        )
    return tuple(
        Hierarchy(tree.point, tree.version, frozenset(one for one in homes if homes[one] == tree))
        for tree in dict.fromkeys(homes.values())
    )


def find_delegated(mounts: Path = MOUNTS, own_groups: Path = OWN_GROUPS) -> tuple[Hierarchy, ...]:
    """Return the part of the version 2 tree of this process that its user may divide, if any."""
    lines = own_groups.read_text().splitlines()
    inside = next((line[3:] for line in lines if line.startswith("0::")), None)
    mounted = next((one for one in find_mounted(mounts) if one.version == 2), None)
    folder = mounted.find(inside) if mounted is not None and inside is not None else None
    if folder is None:  # or this process's part of the tree is not mounted
        return ()
    if folder.name == OUTSIDE:
        folder = folder.parent
    written = (folder, *(folder / name for name in DELEGATED))
    if not all(os.access(path, os.W_OK) for path in written):
        return ()
    return (Hierarchy(folder, 2, _controllers(folder)),)


def inherit(folder: Path, tree: Hierarchy) -> None:
    """Give a new group its parent's memory nodes and CPUs.

    In version 1 a new group has none, and accepts no process and no CPUs before both are
    set. Version 2 uses the parent's unless set otherwise.
    """
    if tree.version == 2 or "cpuset" not in tree.controllers:
        return
    for file in INHERITED:
        try:
            (folder / file).write_text((folder.parent / file).read_text())
        except OSError as error:
            raise HostError(
                f"{folder / file} cannot be set to the value of {folder.parent}: {error.strerror}.",
                hint="Control groups need root and a writable /sys/fs/cgroup.",
            ) from None


def usable(trees: Sequence[Hierarchy]) -> CpuSet:
    """Return the CPUs available to groups below these hierarchies; none without the controller."""
    for tree in trees:
        if "cpuset" in tree.controllers:
            file = tree.root / USABLE[tree.version]
            try:
                return CpuSet(file.read_text().strip())
            except OSError as error:
                raise HostError(
                    f"{file} cannot be read: {error.strerror}.",
                    hint="Remove cpuset from the scenario, or use a kernel that has it.",
                ) from None
    return CpuSet("")


def check_present(owner: str, wanted: CpuSet, found: CpuSet) -> None:
    """Reject CPUs that the host does not have, which version 2 would replace by all its CPUs.

    Raises:
        HostError: one is missing; names it, its user, and the existing CPUs.
    """
    if missing := wanted.numbers - found.numbers:
        raise HostError(
            f"{owner}: cpuset {wanted} contains CPUs that this host does not have "
            f"({CpuSet.of(missing)}), expected CPUs of {found}.",
            hint=f"Choose from {found} in the scenario.",
        )


def _controllers(group: Path) -> frozenset[str]:
    listed = (group / "cgroup.controllers").read_text().split()
    # The freezer of version 2 is not a controller: every group except the root has it.
    return frozenset([*listed, "freezer"]) & USED
