"""The control groups of a container that an engine has made, found by its first process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from testbed.errors import HostError
from testbed.host.group import Group
from testbed.host.hierarchies import MOUNTS, Mounted, find_mounted
from testbed.host.limits import Version
from testbed.host.process import PROC


@dataclass(frozen=True)
class ContainerGroups:
    """The groups of one container, one in every hierarchy.

    Attributes:
        groups: each group with the controllers of its hierarchy (none in version 2, where every
            group may have files of any). Root groups, which hold the whole host, are left out.
    """

    groups: tuple[tuple[Group, frozenset[str]], ...] = ()

    @classmethod
    def of(cls, pid: int, *, mounts: Path = MOUNTS, proc: Path = PROC) -> ContainerGroups:
        """The groups that a process is in.

        Args:
            pid: the process.
            mounts: this process's mountinfo.
            proc: where processes are seen.

        Raises:
            HostError: one of them is in a hierarchy that is not mounted here.
            OSError: there is no such process.
        """
        mounted = find_mounted(mounts)
        lines = (proc / str(pid) / "cgroup").read_text().splitlines()
        places = (line.split(":", 2)[1:] for line in lines)
        return cls(tuple(_find(mounted, names, at) for names, at in places if at != "/"))

    def entrances(self) -> tuple[Path, ...]:
        """The files into which a process writes 0 to become one of the container's."""
        return tuple(group.entrance for group, _ in self.groups)

    def oom_kills(self) -> int:
        """How often the kernel has killed in there because the memory limit was reached."""
        return sum(group.oom_kills() for group in self._serving("memory"))

    def frozen(self) -> bool:
        """Whether the container stands still, or is about to."""
        return any(group.asked_to_freeze() for group in self._serving("freezer"))

    def thaw(self) -> None:
        """Let it go on, whatever the engine believes: in version 1 nothing frozen can end."""
        for group in self._serving("freezer"):
            if group.version == 1:
                group.set_frozen(False)

    def _serving(self, controller: str) -> Iterator[Group]:
        return (
            group
            for group, controllers in self.groups
            if group.version == 2 or controller in controllers
        )


def _find(mounted: list[Mounted], names: str, at: str) -> tuple[Group, frozenset[str]]:
    """The group at a path of the hierarchy with these controllers; version 2 has no names."""
    version: Version = 1 if names else 2
    controllers = frozenset(filter(None, names.split(",")))
    for tree in mounted:
        if tree.version == version and controllers <= tree.options:
            folder = tree.find(at)
            if folder is not None:
                return Group(folder, version), controllers
    raise HostError(
        f"the control group {at} of {names or 'version 2'} is not mounted here.",
        hint="The agent has to see the host's control groups: remove its container and start anew.",
    )
