"""Where this host has its control groups: version 1, version 2, or each for some controllers.

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
USED = frozenset((*CONTROLLERS, "cpuset"))
"""Every run needs CONTROLLERS; cpuset only one whose scenario has such a limit."""

MOUNTS = Path("/proc/self/mountinfo")
OWN_GROUPS = Path("/proc/self/cgroup")

KINDS: Mapping[str, Version] = {"cgroup": 1, "cgroup2": 2}
"""File systems of control groups."""

OUTSIDE = "testbed-outside"
"""Group for what was in a delegated group before: only one without processes can be divided."""

DELEGATED = ("cgroup.procs", "cgroup.subtree_control")

INHERITED = ("cpuset.mems", "cpuset.cpus")
USABLE = {1: "cpuset.effective_cpus", 2: "cpuset.cpus.effective"}


@dataclass(frozen=True)
class Hierarchy:
    """One mounted tree of control groups, or the part of it that is the user's.

    Attributes:
        root: where it is mounted, or the user's part begins.
        controllers: those of USED that it carries.
    """

    root: Path
    version: Version
    controllers: frozenset[str]


@dataclass(frozen=True)
class Mounted:
    """A mounted tree of control groups, as mountinfo has it.

    Attributes:
        point: where it is mounted.
        shown: the group that is seen there.
        options: of the mount; in version 1 its controllers are among them.
    """

    point: Path
    shown: Path
    version: Version
    options: frozenset[str]

    def find(self, group: str) -> Path | None:
        """Where a group of this tree is seen; None if another part of the tree is mounted."""
        try:
            return self.point / Path(group).relative_to(self.shown)
        except ValueError:
            return None


def find_mounted(mounts: Path = MOUNTS) -> list[Mounted]:
    """Every tree of control groups that is mounted here."""
    found = []
    for line in mounts.read_text().splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        if kind in KINDS:
            shown, point = map(Path, before.split()[3:5])
            found.append(Mounted(point, shown, KINDS[kind], frozenset(options.split(","))))
    return found


def find_hierarchies(mounts: Path = MOUNTS) -> tuple[Hierarchy, ...]:
    """The hierarchies that carry what is USED, each controller in one of them.

    Raises:
        HostError: one of CONTROLLERS is nowhere.
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
    """The part of a version 2 tree that this process is in and its user may divide; or nothing."""
    lines = own_groups.read_text().splitlines()
    inside = next((line[3:] for line in lines if line.startswith("0::")), None)
    mounted = next((one for one in find_mounted(mounts) if one.version == 2), None)
    folder = mounted.find(inside) if mounted is not None and inside is not None else None
    if folder is None:  # or another part of the tree is mounted than the one this process is in
        return ()
    if folder.name == OUTSIDE:
        folder = folder.parent
    written = (folder, *(folder / name for name in DELEGATED))
    if not all(os.access(path, os.W_OK) for path in written):
        return ()
    return (Hierarchy(folder, 2, _controllers(folder)),)


def inherit(folder: Path, tree: Hierarchy) -> None:
    """Give a new group its parent's memory nodes and CPUs.

    In version 1 a group has none of its own accord, and takes no process and no CPUs before it has
    both. Version 2 takes the parent's where nothing else is said.
    """
    if tree.version == 2 or "cpuset" not in tree.controllers:
        return
    for file in INHERITED:
        try:
            (folder / file).write_text((folder.parent / file).read_text())
        except OSError as error:
            raise HostError(
                f"{folder / file} cannot be set to what {folder.parent} has: {error.strerror}.",
                hint="Control groups need root and a writable /sys/fs/cgroup.",
            ) from None


def usable(trees: Sequence[Hierarchy]) -> CpuSet:
    """The CPUs that groups below these hierarchies can have; none without the controller."""
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


def check_present(whose: str, wanted: CpuSet, trees: Sequence[Hierarchy]) -> None:
    """Refuse CPUs that this host has not, which version 2 would replace by all that it has.

    Raises:
        HostError: one is missing; names it, whose it was to be, and what there is.
    """
    found = usable(trees)
    if missing := wanted.numbers - found.numbers:
        raise HostError(
            f"{whose}: cpuset {wanted} has CPUs that this host has not ({CpuSet.of(missing)}); "
            f"it has {found}.",
            hint=f"Choose from {found} in the scenario.",
        )


def _controllers(group: Path) -> frozenset[str]:
    listed = (group / "cgroup.controllers").read_text().split()
    # The freezer of version 2 is no controller: every group but the root has it.
    return frozenset([*listed, "freezer"]) & USED
