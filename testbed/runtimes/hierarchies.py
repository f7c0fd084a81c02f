"""Where this host has its control groups: version 1, version 2, or each for some controllers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from testbed.errors import HostError
from testbed.runtimes.limits import Version

CONTROLLERS = ("cpu", "memory", "freezer", "pids")
USED = frozenset((*CONTROLLERS, "cpuset"))
"""Every run needs CONTROLLERS; cpuset only one whose scenario has such a limit."""

MOUNTS = Path("/proc/self/mountinfo")
OWN_GROUPS = Path("/proc/self/cgroup")

OUTSIDE = "testbed-outside"
"""Group for what was in a delegated group before: only one without processes can be divided."""

DELEGATED = ("cgroup.procs", "cgroup.subtree_control")


@dataclass(frozen=True)
class Hierarchy:
    """One mounted tree of control groups, or the part of it that is the user's.

    Attributes:
        root: where it is mounted, or the user's part begins.
        version: 1 or 2.
        controllers: those of USED that it carries.
    """

    root: Path
    version: Version
    controllers: frozenset[str]


def find_hierarchies(mounts: Path = MOUNTS) -> tuple[Hierarchy, ...]:
    """The hierarchies that carry what is USED, each controller in one of them.

    Raises:
        HostError: one of CONTROLLERS is nowhere.
    """
    mounted = [_parse(line) for line in mounts.read_text().splitlines()]
    # A controller that version 1 has claimed is not available to version 2.
    ordered = sorted((tree for tree in mounted if tree is not None), key=lambda tree: tree.version)
    homes: dict[str, Path] = {}
    for tree in ordered:
        for controller in sorted(tree.controllers):
            homes.setdefault(controller, tree.root)
    missing = [controller for controller in CONTROLLERS if controller not in homes]
    if missing:
        raise HostError(
            f"this host has no control groups for {', '.join(missing)}.",
            hint="Mount them (`mount -t cgroup2 none /sys/fs/cgroup`), or boot with them enabled.",
        )
    return _used(ordered, homes)


def find_delegated(mounts: Path = MOUNTS, own_groups: Path = OWN_GROUPS) -> tuple[Hierarchy, ...]:
    """The part of a version 2 tree that this process is in and its user may divide; or nothing."""
    lines = own_groups.read_text().splitlines()
    inside = next((line[3:] for line in lines if line.startswith("0::")), None)
    roots = [_parse_place(line) for line in mounts.read_text().splitlines()]
    mounted = next((place for place in roots if place is not None), None)
    if inside is None or mounted is None:
        return ()
    root, shown = mounted
    try:
        folder = root / Path(inside).relative_to(shown)
    except ValueError:  # mounted is another part of the tree than the one this process is in
        return ()
    if folder.name == OUTSIDE:
        folder = folder.parent
    if not all(
        os.access(path, os.W_OK) for path in (folder, *(folder / name for name in DELEGATED))
    ):
        return ()
    return (Hierarchy(folder, 2, _controllers(folder)),)


def _used(trees: list[Hierarchy], homes: Mapping[str, Path]) -> tuple[Hierarchy, ...]:
    """The trees that something was found in, each reduced to what it is used for."""
    used: dict[Path, Hierarchy] = {}
    for tree in trees:
        mine = frozenset(name for name, root in homes.items() if root == tree.root)
        if mine:
            used.setdefault(tree.root, Hierarchy(tree.root, tree.version, mine))
    return tuple(used.values())


def _parse(line: str) -> Hierarchy | None:
    """A line of mountinfo, if it is a tree of control groups with a controller of ours."""
    before, _, after = line.partition(" - ")
    kind, _, options = after.split(" ", 2)
    root = Path(before.split()[4])
    if kind == "cgroup":
        found = frozenset(options.split(",")) & USED
        return Hierarchy(root, 1, found) if found else None
    if kind == "cgroup2":
        return Hierarchy(root, 2, _controllers(root))
    return None


def _parse_place(line: str) -> tuple[Path, Path] | None:
    """Of a mounted version 2 tree: where it is mounted, and which group is shown there."""
    before, _, after = line.partition(" - ")
    shown, root = before.split()[3:5]
    return (Path(root), Path(shown)) if after.startswith("cgroup2 ") else None


def _controllers(group: Path) -> frozenset[str]:
    listed = (group / "cgroup.controllers").read_text().split()
    # The freezer of version 2 is no controller: every group but the root has it.
    return frozenset([*listed, "freezer"]) & USED
