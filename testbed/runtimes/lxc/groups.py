"""What a run in LXC containers has on this host: control groups, and records of its containers.

LXC has no labels. A container in its folder is a link into the run folder, which so is on record
also after it was deleted; and LXC creates all groups of a run, the monitors' included, below
``testbed.lxc/<run>`` in every hierarchy.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from testbed.errors import HostError
from testbed.host.cgroups import AGENT_GROUP, RunGroups
from testbed.host.hierarchies import Hierarchy, find_hierarchies, find_mounted
from testbed.telemetry.folder import RunFolder

PARENT = "testbed.lxc"
DEFAULT_FOLDER = Path("/var/lib/lxc")
LOCKS = Path("/run/lxc/lock")
PLACE = "place"
"""Link to a container's place in LXC's folder, which an agent of an ordinary user cannot ask for:
in its user namespace it is root."""


@dataclass(frozen=True)
class Record:
    """A container in LXC's folder; it may run, or have ended.

    Attributes:
        place: link to the folder with its configuration; its name is the container's.
        folder: run folder.
    """

    place: Path
    folder: Path

    @property
    def run(self) -> str:
        """The name of the run."""
        return self.folder.name

    def create(self, kept: Path) -> None:
        """Link to the folder with a container's configuration, and from there back.

        Raises:
            FileExistsError: LXC has a container of this name.
        """
        self.place.parent.mkdir(parents=True, exist_ok=True)
        (kept / PLACE).symlink_to(self.place)
        self.place.symlink_to(kept)

    def remove(self) -> None:
        """Remove a container that has ended, as lxc-destroy does. Idempotent."""
        with suppress(FileNotFoundError):  # the run's agent has removed it meanwhile
            shutil.rmtree(self.place.readlink(), ignore_errors=True)
        lock = LOCKS / self.place.relative_to("/").with_name(f".{self.place.name}")
        for path in (lock, self.place):
            path.unlink(missing_ok=True)


def containers_folder(run: Path) -> Path:
    """Return the folder with the containers of the run in a run folder."""
    return RunFolder(run).control / "lxc"


@cache
def lxc_folder() -> Path:
    """Return the folder in which LXC looks for containers."""
    with suppress(FileNotFoundError):
        asked = subprocess.run(
            ["lxc-config", "lxc.lxcpath"], capture_output=True, text=True, check=False
        )
        return Path(asked.stdout.strip() or DEFAULT_FOLDER)
    return DEFAULT_FOLDER


def read_record(place: Path) -> Record | None:
    """Return a container that testbed has created; None for any other, or if there is none."""
    try:
        kept = place.readlink()
        folder = kept.parents[2]
    except (OSError, IndexError):  # it is no link, or does not exist
        return None
    return Record(place, folder) if kept.parent == containers_folder(folder) else None


def find_records() -> Iterator[Record]:
    """Find the containers of all of this user's runs."""
    for place in lxc_folder().glob("testbed-*"):
        if (record := read_record(place)) is not None:
            yield record


def find_trees() -> tuple[Hierarchy, ...]:
    """Return every hierarchy, also those without a controller that runs use; root only."""
    if os.geteuid() != 0:
        return ()
    used = {tree.root: tree for tree in find_hierarchies()}
    return tuple(
        used.get(one.point, Hierarchy(one.point, one.version, frozenset()))
        for one in find_mounted()
    )


@dataclass(frozen=True)
class LxcGroups(RunGroups):
    """The control groups of one run, which removes the run's containers with them."""

    folder: Path = field(kw_only=True)

    @classmethod
    def of(cls, folder: Path, trees: tuple[Hierarchy, ...]) -> LxcGroups:
        """Return the groups of the run with this folder."""
        return cls(folder.name, trees, PARENT, folder=folder)

    @staticmethod
    def monitor(node: str) -> str:
        """Return the name of the group of a container's monitor."""
        return f"{node}.monitor"

    def entrance(self) -> Path | None:
        """Return the file into which a process writes 0 before it starts a container.

        It can then be found by ``members``, as can all that it starts. None without an agent.
        """
        agent = self._counted().node(AGENT_GROUP).entrances()
        return next((entrance for entrance in agent if entrance.parent.is_dir()), None)

    def members(self, *names: str) -> set[int]:
        return self._counted().members(*names)

    def create(self) -> None:
        """Create the run's own groups; LXC's below them get their CPUs and memory nodes."""
        super().create()
        for tree in self.hierarchies:
            if tree.version == 1 and "cpuset" in tree.controllers:
                (self._folder(tree) / "cgroup.clone_children").write_text("1")

    def remove(self, *, deadline: float) -> None:
        super().remove(deadline=deadline)
        linked = (link.readlink() for link in containers_folder(self.folder).glob(f"*/{PLACE}"))
        for record in {*map(read_record, linked), *find_records()}:
            if record is not None and record.folder == self.folder:
                record.remove()
        shutil.rmtree(containers_folder(self.folder), ignore_errors=True)

    def _unenforced(self, limit: str, controller: str) -> HostError:
        if self.hierarchies:
            return super()._unenforced(limit, controller)
        return HostError(
            f"{limit} cannot be enforced: LXC containers of ordinary users have no control groups.",
            hint="Run it as root, remove the limit, or use `runtime: native`, whose control groups "
            "can be delegated to a user.",
        )

    def _counted(self) -> RunGroups:
        """Return the groups of one hierarchy: a process may not have entered the others yet."""
        trees = tuple(tree for tree in self.hierarchies if "pids" in tree.controllers)
        return RunGroups(self.run, trees, self.parent)
