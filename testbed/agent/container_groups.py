"""The control groups of a container that an engine has made, found by its first process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from testbed.errors import HostError
from testbed.runtimes.cgroups import PROCESSES
from testbed.runtimes.hierarchies import MOUNTS
from testbed.runtimes.limits import Version
from testbed.runtimes.process import PROC

_KINDS: dict[str, Version] = {"cgroup": 1, "cgroup2": 2}


@dataclass(frozen=True)
class Group:
    """A control group.

    Attributes:
        folder: where it is.
        version: 1 or 2.
        controllers: of its hierarchy; none in version 2, where a group has what it is given.
    """

    folder: Path
    version: Version
    controllers: frozenset[str] = frozenset()

    def serves(self, controller: str) -> bool:
        """Whether it may hold files of this controller."""
        return self.version == 2 or controller in self.controllers

    def read(self, file: str) -> str:
        """What one of its files says; nothing if the container is gone, or has no such file."""
        try:
            return (self.folder / file).read_text().strip()
        except OSError:
            return ""


@dataclass(frozen=True)
class ContainerGroups:
    """The groups of one container, one in every hierarchy.

    Attributes:
        groups: them; those left out which every process of the host is in.
    """

    groups: tuple[Group, ...] = ()

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
        mounted = [one for line in mounts.read_text().splitlines() if (one := _parse(line))]
        lines = (proc / str(pid) / "cgroup").read_text().splitlines()
        places = (line.split(":", 2)[1:] for line in lines)
        return cls(tuple(_find(mounted, names, at) for names, at in places if at != "/"))

    def entrances(self) -> tuple[Path, ...]:
        """The files into which a process writes 0 to become one of the container's."""
        return tuple(group.folder / PROCESSES for group in self.groups)

    def oom_kills(self) -> int:
        """How often the kernel has killed in there because the memory limit was reached."""
        for group in self._serving("memory"):
            words = group.read(
                "memory.oom_control" if group.version == 1 else "memory.events"
            ).split()
            if "oom_kill" in words:
                return int(words[words.index("oom_kill") + 1])
        return 0

    def frozen(self) -> bool:
        """Whether the container stands still, or is about to."""
        return any(
            group.read("freezer.state") not in ("THAWED", "")
            if group.version == 1
            else group.read("cgroup.freeze") == "1"
            for group in self._serving("freezer")
        )

    def thaw(self) -> None:
        """Let it go on, whatever the engine believes: in version 1 nothing frozen can end."""
        for group in self._serving("freezer"):
            if group.version == 1:
                (group.folder / "freezer.state").write_text("THAWED")

    def _serving(self, controller: str) -> Iterator[Group]:
        return (group for group in self.groups if group.serves(controller))


@dataclass(frozen=True)
class _Mounted:
    """A mounted tree of control groups: where, which group is shown there, and its controllers."""

    point: Path
    shown: Path
    version: Version
    options: frozenset[str]


def _parse(line: str) -> _Mounted | None:
    """A line of mountinfo, if it is a tree of control groups."""
    before, _, after = line.partition(" - ")
    kind, _, options = after.split(" ", 2)
    if kind not in _KINDS:
        return None
    shown, point = before.split()[3:5]
    return _Mounted(Path(point), Path(shown), _KINDS[kind], frozenset(options.split(",")))


def _find(mounted: list[_Mounted], names: str, at: str) -> Group:
    """The group at a path of the hierarchy with these controllers; version 2 has no names."""
    version: Version = 1 if names else 2
    controllers = frozenset(filter(None, names.split(",")))
    for tree in mounted:
        if tree.version == version and controllers <= tree.options:
            with suppress(ValueError):  # another part of the tree is mounted there
                return Group(tree.point / Path(at).relative_to(tree.shown), version, controllers)
    raise HostError(
        f"the control group {at} of {names or 'version 2'} is not mounted here.",
        hint="The agent has to see the host's control groups: remove its container and start anew.",
    )
