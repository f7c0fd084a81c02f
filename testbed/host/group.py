"""A control group, of version 1 or 2, and the groups of a node's container."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from testbed.errors import HostError, NodeError
from testbed.host import kernel_files
from testbed.host.hierarchies import MOUNTS, Mounted, find_mounted
from testbed.host.limits import LIMIT_FILES, Limits, Setting, Version, quota, settings, share
from testbed.host.process import PROC, describe
from testbed.values.usage import ContainerUse

PROCESSES = "cgroup.procs"
POLL_SECONDS = 0.005
FREEZE_SECONDS = 10.0

REAL_TIME = {os.SCHED_FIFO: "SCHED_FIFO", os.SCHED_RR: "SCHED_RR"}
"""Schedulers whose processes a version 1 group accepts only with a budget (cpu.rt_runtime_us)."""


@dataclass(frozen=True)
class Group:
    """A control group, which may not exist, or be removed at any moment."""

    folder: Path
    version: Version

    @property
    def entrance(self) -> Path:
        """The file into which a process writes 0 to join the group."""
        return self.folder / PROCESSES

    def pids(self) -> list[int]:
        """Return its processes, as this pid namespace sees them."""
        return [int(word) for word in self._read(PROCESSES).split()]

    def children(self) -> list[Group]:
        """Return the groups directly below it."""
        try:
            entries = [entry for entry in os.scandir(self.folder) if entry.is_dir()]
        except FileNotFoundError:
            return []
        return [Group(Path(entry.path), self.version) for entry in entries]

    def tree(self) -> list[Group]:
        """Return it and all groups below it, every group after the one that contains it."""
        return [self, *(below for child in self.children() for below in child.tree())]

    def oom_kills(self) -> int:
        """Return the number of OOM kills in it because of its memory limit."""
        file = "memory.oom_control" if self.version == 1 else "memory.events"
        return int(self._field(file, "oom_kill") or 0)

    def cpu_seconds(self) -> float | None:
        """Return the CPU time of all its past and present processes; None if not counted."""
        if self.version == 1:
            used = self._read("cpuacct.usage")
            return int(used) / 1e9 if used else None
        spent = self._field("cpu.stat", "usage_usec")
        return None if spent is None else int(spent) / 1e6

    def memory_bytes(self) -> int | None:
        """Return the memory charged to it; None if not counted."""
        used = self._read("memory.usage_in_bytes" if self.version == 1 else "memory.current")
        return int(used) if used else None

    def asked_to_freeze(self) -> bool:
        """Return whether it was frozen and not thawed since; processes may run for a moment."""
        if self.version == 1:
            return self._read("freezer.state") not in ("THAWED", "")
        return self._read("cgroup.freeze") == "1"

    def set_frozen(self, frozen: bool) -> None:
        """Ask the kernel to freeze or thaw its processes; OSError if it does not exist."""
        if self.version == 1:
            (self.folder / "freezer.state").write_text("FROZEN" if frozen else "THAWED")
        else:
            (self.folder / "cgroup.freeze").write_text("1" if frozen else "0")

    def is_frozen(self) -> bool:
        """Return whether the kernel has completed ``set_frozen``, which may take a while."""
        if self.version == 1:
            return self._read("freezer.state") == "FROZEN"
        return self._field("cgroup.events", "frozen") == "1"

    def limit(self, limits: Limits, controller: str) -> None:
        """Set the limits of one controller, and check that the kernel has accepted them.

        Raises:
            HostError: it has not; names the file and its actual content.
        """
        self._write(settings(limits, controller, self.version))

    def set_quota(self, cpus: float) -> None:
        """Change the CPU limit to a number of CPUs; raises what ``limit`` does."""
        self._write(quota(cpus, self.version))

    def set_share(self, weight: float) -> None:
        """Set its share of busy CPUs, 1 being that of a new group; raises what ``limit`` does."""
        self._write([share(weight, self.version)])

    def _write(self, wanted: Iterable[Setting]) -> None:
        for setting in wanted:
            path = self.folder / setting.file
            if setting.optional and not path.exists():
                continue
            try:
                path.write_text(setting.value)
                found = path.read_text().strip()
            except OSError as error:
                raise HostError(
                    f"{self.folder.name}: {path} cannot be set to {setting.value}: "
                    f"{error.strerror}.",
                    hint="Remove the limit from the scenario, or use a kernel that has it.",
                ) from None
            if found != setting.value:
                raise HostError(
                    f"{self.folder.name}: {path} is {found} after {setting.value} was written.",
                    hint="The kernel does not enforce this limit; use another value.",
                )

    def limits(self, controller: str) -> dict[str, str]:
        """Return the files with the limits of one controller, as far as they exist."""
        found = {file: self._read(file) for file in LIMIT_FILES[controller]}
        return {file: text for file, text in found.items() if text}

    def remove(self, *, deadline: float) -> None:
        """Remove it; the kernel takes a moment to remove processes that have just ended.

        Raises:
            HostError: it is still in use at the deadline (``time.monotonic``); names its pids.
        """
        while True:
            try:
                self.folder.rmdir()
            except FileNotFoundError:
                return
            except OSError as error:
                if time.monotonic() > deadline:
                    pids = ", ".join(map(describe, self.pids())) or "none listed"
                    raise HostError(
                        f"{self.folder} cannot be removed: {error.strerror} (processes: {pids}).",
                        hint="End these processes and run `testbed down` again.",
                    ) from None
                time.sleep(POLL_SECONDS)
            else:
                return

    def remove_tree(self, *, deadline: float) -> None:
        """Remove it and all groups below it; raises what ``remove`` does."""
        with suppress(OSError):  # most have none below them, so these are not listed first
            self.folder.rmdir()
            return
        for child in self.children():
            child.remove_tree(deadline=deadline)
        self.remove(deadline=deadline)

    def _read(self, file: str) -> str:
        """Return the content of one of its files; empty if it does not exist or is removed."""
        try:
            return (self.folder / file).read_text().strip()
        except OSError:
            return ""

    def _field(self, file: str, name: str) -> str | None:
        words = self._read(file).split()
        return words[words.index(name) + 1] if name in words else None


def enter(entrance: Path | str) -> None:
    """Move this process into a control group, given the file into which it writes 0.

    Raises:
        HostError: this process has a real-time scheduler, and the group no budget for that.
        OSError: it cannot be entered for another reason.
    """
    try:
        kernel_files.write(entrance, b"0")
    except OSError as error:
        scheduler = REAL_TIME.get(os.sched_getscheduler(0))
        if error.errno != errno.EINVAL or scheduler is None:
            raise
        raise HostError(
            f"{Path(entrance).parent} accepts no real-time process, but testbed was started under "
            f"{scheduler}: new control groups of version 1 have no real-time budget.",
            hint="Start it without `chrt`, or with `chrt --other 0 testbed up ...`.",
        ) from None


@dataclass(frozen=True)
class ContainerGroups:
    """The groups of one container, one in every hierarchy.

    Attributes:
        groups: each group with the controllers of its hierarchy (none in version 2, where every
            group may have files of any, where they were found by a process). Root groups, which
            contain the whole host, are left out.
    """

    groups: tuple[tuple[Group, frozenset[str]], ...] = ()

    @classmethod
    def of(cls, pid: int, *, mounts: Path = MOUNTS, proc: Path = PROC) -> ContainerGroups:
        """Return the groups of a process.

        Raises:
            HostError, OSError: a hierarchy is not mounted here; there is no such process.
        """
        mounted = find_mounted(mounts)
        lines = (proc / str(pid) / "cgroup").read_text().splitlines()
        places = (line.split(":", 2)[1:] for line in lines)
        return cls(tuple(_find(mounted, names, at) for names, at in places if at != "/"))

    def entrances(self) -> tuple[Path, ...]:
        """Return the files into which a process writes 0 to join the container."""
        return tuple(group.entrance for group, _ in self.groups)

    def oom_kills(self) -> int:
        """Return the number of OOM kills in it because of its memory limit."""
        return sum(group.oom_kills() for group in self.serving("memory"))

    def frozen(self) -> bool:
        """Return whether the container is frozen or freezing."""
        return any(group.asked_to_freeze() for group in self.serving("freezer"))

    def use(self) -> ContainerUse:
        """Return the resources the container has used, as far as its groups count them."""
        spent = (group.cpu_seconds() for group in self.serving("cpuacct"))
        held = (group.memory_bytes() for group in self.serving("memory"))
        return ContainerUse(
            next((one for one in spent if one is not None), None),
            next((one for one in held if one is not None), None),
        )

    def limits(self) -> dict[str, str]:
        """Return the files with the container's limits, by name; empty if its groups are gone."""
        found: dict[str, str] = {}
        for controller in LIMIT_FILES:
            for group in self.serving(controller):
                found |= group.limits(controller)
        return found

    def set_quota(self, cpus: float) -> None:
        """Change its CPU limit.

        Raises:
            HostError: no control group of it limits its CPU time, or the kernel refuses the limit.
        """
        serving = self.serving("cpu")
        if not serving:
            raise HostError(
                f"{cpus:g} CPUs cannot be enforced: no control group limits its CPU time."
            )
        for group in serving:
            group.set_quota(cpus)

    def freeze(self) -> None:
        """Freeze it, without the engine's knowledge, and wait until it is frozen.

        Raises:
            NodeError: it does not freeze in time.
            OSError: a group does not exist.
        """
        deadline = time.monotonic() + FREEZE_SECONDS
        for group in self.serving("freezer"):
            group.set_frozen(True)
            while not group.is_frozen():
                if not group.folder.is_dir() or time.monotonic() > deadline:
                    raise NodeError(f"{group.folder} does not freeze within {FREEZE_SECONDS:g} s.")
                time.sleep(POLL_SECONDS)

    def thaw(self) -> None:
        """Thaw it, whatever state the engine assumes: no frozen process can end in version 1."""
        for group in self.serving("freezer"):
            group.set_frozen(False)

    def serving(self, controller: str) -> list[Group]:
        """Return the group with a controller, preferably of version 1; empty without groups."""
        first = [group for group, controllers in self.groups if controller in controllers]
        return first or [group for group, _ in self.groups if group.version == 2]


def _find(mounted: list[Mounted], names: str, at: str) -> tuple[Group, frozenset[str]]:
    """Return the group at path ``at`` of a hierarchy, and the hierarchy's controllers.

    ``names`` are the controllers of a hierarchy of version 1, empty for version 2.
    """
    if ".." in Path(at).parts:
        raise HostError(
            "the engine has put the agent into a control group namespace of its own.",
            hint='With Podman, set cgroupns = "host" in section [containers] of '
            "/etc/containers/containers.conf (without root: ~/.config/containers/containers.conf), "
            "and restart its service.",
        )
    version: Version = 1 if names else 2
    controllers = frozenset(filter(None, names.split(",")))
    for tree in mounted:
        if tree.version == version and controllers <= tree.options:
            folder = tree.find(at)
            if folder is not None:
                return Group(folder, version), controllers
    raise HostError(
        f"the control group {at} of {names or 'version 2'} is not mounted.",
        hint="The agent needs the host's control groups: recreate its container.",
    )
