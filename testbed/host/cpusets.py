"""What is special about the controller ``cpuset``: groups start empty, CPUs may be missing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from testbed.errors import HostError
from testbed.host.hierarchies import Hierarchy
from testbed.values.cpu_sets import CpuSet

INHERITED = ("cpuset.mems", "cpuset.cpus")
USABLE = {1: "cpuset.effective_cpus", 2: "cpuset.cpus.effective"}


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
