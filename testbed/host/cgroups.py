"""The control groups of a run: ``testbed/<run>/<node>`` in every hierarchy that is used."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from testbed.errors import HostError
from testbed.host.group import POLL_SECONDS, PROCESSES, ContainerGroups, Group
from testbed.host.hierarchies import OUTSIDE, Hierarchy, check_present, inherit, usable
from testbed.host.limits import RUNS_SHARE, Limits
from testbed.host.process import if_exists
from testbed.values.topology import NodeSpec

PARENT = "testbed"
AGENT_GROUP = "agent"
"""The agent's own group, next to the nodes' groups."""

SUBTREE = "cgroup.subtree_control"
CURE = (
    "Run it as root or, with control groups version 2, under "
    "`systemd-run --user --scope -p Delegate=yes`."
)
UNDELEGATED = (
    "Run it as root on a kernel that has it. To delegate it to users, set Delegate=cpu cpuset "
    "memory pids with `systemctl edit user@.service`."
)
ATTEMPTS = 10


@dataclass(frozen=True)
class RunGroups:
    """The control groups of one run; none on this host if ``hierarchies`` is empty.

    ``parent`` is the name of the group above those of all runs of a runtime.
    """

    run: str
    hierarchies: tuple[Hierarchy, ...]
    parent: str = PARENT

    def create(self) -> None:
        """Create the run's own groups, the parents of the nodes' groups; all of them or none.

        Raises:
            HostError: groups of that name exist, or cannot be created.
        """
        made: list[Path] = []
        try:
            for tree in self.hierarchies:
                self._create(tree, made)
        except HostError:
            for folder in made:
                folder.rmdir()
            raise

    def _create(self, tree: Hierarchy, made: list[Path]) -> None:
        folder = self._folder(tree)
        try:
            _make(folder)
            made.append(folder)
            for level in (folder.parent, folder):
                inherit(level, tree)
            if tree.version == 2:
                for level in (tree.root, folder.parent, folder):
                    _delegate(level, tree)
            if "cpu" in tree.controllers:
                Group(folder.parent, tree.version).set_share(RUNS_SHARE)
        except FileExistsError:
            raise HostError(
                f"{folder} exists: a run of that name is active, or was not removed.",
                hint=f"`testbed down {self.run}` removes it.",
            ) from None
        except OSError as error:
            raise HostError(
                f"{folder} cannot be created: {error.strerror}.",
                hint="Control groups need root and a writable /sys/fs/cgroup.",
            ) from None

    def add(self, node: str, limits: Limits) -> None:
        """Create a node's groups, or reuse those of an ended node, and set their limits.

        Raises:
            HostError: a limit cannot be enforced; names the file and its actual content.
        """
        for tree in self.hierarchies:
            wanted = tree.controllers & frozenset(limits.controllers)
            if not wanted:
                continue
            folder = self._folder(tree) / node
            with suppress(FileExistsError):
                folder.mkdir()
            inherit(folder, tree)
            for controller in sorted(wanted):
                Group(folder, tree.version).limit(limits, controller)

    def entrances(self, node: str) -> list[Path]:
        """Return the files into which a process writes 0 to join the node."""
        files = (self._folder(tree) / node / PROCESSES for tree in self.hierarchies)
        return [file for file in files if file.parent.is_dir()]

    def exits(self) -> list[Path]:
        """Return the files into which a process writes 0 to leave the groups of all runs."""
        outside = [(tree.root / OUTSIDE, tree.root) for tree in self.hierarchies]
        return [(one if one.is_dir() else root) / PROCESSES for one, root in outside]

    def leave(self) -> None:
        """Move this process out of the groups of all runs."""
        for way_out in self.exits():
            way_out.write_text("0")

    def has(self, controller: str) -> bool:
        """Return whether there are groups with this controller."""
        return any(controller in tree.controllers for tree in self.hierarchies)

    def check(self, nodes: Iterable[NodeSpec]) -> None:
        """Reject limits that no group can enforce, and CPUs that this host does not have.

        Raises:
            HostError: a node has one of these; names it, and the fix.
        """
        for node in nodes:
            owner = node.full_name
            wanted = {"cpu": node.cpu, "memory": node.memory, "cpuset": node.cpuset}
            for controller, limit in wanted.items():
                if limit is not None and not self.has(controller):
                    raise self._unenforced(f"{owner}: {controller} {limit}", controller)
            if node.cpuset is not None:
                check_present(owner, node.cpuset, usable(self.hierarchies))

    def _unenforced(self, limit: str, controller: str) -> HostError:
        if not self.hierarchies:
            lacking = "this user cannot create control groups"
            return HostError(f"{limit} cannot be enforced: {lacking}.", hint=CURE)
        lacking = f"the control groups do not have the controller {controller}"
        return HostError(f"{limit} cannot be enforced: {lacking}.", hint=UNDELEGATED)

    @contextmanager
    def empty_parent_group(self) -> Iterator[None]:
        """Version 2: empty the parent group of the runs' groups; only an empty one can be divided.

        No other run that ends fills it again during the body, in which the run's groups are
        created. Must be called from the pid namespace of its processes. The root of all groups,
        which alone may have both, is left unchanged.

        Raises:
            HostError: the processes cannot be moved.
        """
        with ExitStack() as held:
            for tree in self.hierarchies:
                if tree.version == 2 and (tree.root / "cgroup.type").exists():
                    held.enter_context(_locked(tree.root, fcntl.LOCK_SH))
                    if not _divided(tree):
                        _move_all(tree.root, tree.root / OUTSIDE)
            yield

    def restore_parent_group(self) -> None:
        """Undo ``empty_parent_group``, unless other runs still use the group."""
        for tree in self.hierarchies:
            outside = tree.root / OUTSIDE
            if outside.is_dir() and not (tree.root / self.parent).exists():
                # Another run may just be starting, and need the parent group as it is.
                with suppress(OSError), _locked(tree.root, fcntl.LOCK_EX | fcntl.LOCK_NB):
                    names = (tree.root / SUBTREE).read_text().split()
                    (tree.root / SUBTREE).write_text(" ".join(f"-{name}" for name in names))
                    _move_all(outside, tree.root)
                    outside.rmdir()

    def node(self, node: str) -> ContainerGroups:
        """Return the groups of a node; one may not exist, for example without a limit."""
        trees = self.hierarchies
        return ContainerGroups(
            tuple((Group(self._folder(one) / node, one.version), one.controllers) for one in trees)
        )

    def processes(self, node: str) -> list[int]:
        """Return the pids of a node, as this pid namespace sees them."""
        return [pid for group in self.node(node).serving("pids") for pid in group.pids()]

    def thaw_all(self, *names: str) -> None:
        """Thaw every group of the run, or only those with these names.

        A frozen process cannot be killed in version 1.
        """
        for tree in self.hierarchies:
            for group in self._trees(tree, names) if "freezer" in tree.controllers else ():
                with suppress(FileNotFoundError):  # removed meanwhile
                    group.set_frozen(False)

    def members(self, *names: str) -> set[int]:
        """Return the pids of all processes in any group of the run, or in those of these names."""
        groups = (group for tree in self.hierarchies for group in self._trees(tree, names))
        return {pid for group in groups for pid in group.pids()}

    def kill_all(self, *names: str, deadline: float) -> None:
        """Kill the processes in all groups, or in these, until none is left or the deadline."""
        while members := self.members(*names):
            found = [process for pid in members if (process := if_exists(pid)) is not None]
            # Its start time was read before it is seen in the group again: it is the same process.
            again = self.members(*names)
            for process in found:
                if process.pid in again:
                    process.kill()
            self.thaw_all(*names)
            if time.monotonic() > deadline:
                return
            time.sleep(POLL_SECONDS)

    def remove_node(self, node: str, *, deadline: float) -> None:
        """Remove a node's groups, whose processes have ended or are ending; see ``remove``."""
        for tree in self.hierarchies:
            Group(self._folder(tree) / node, tree.version).remove_tree(deadline=deadline)

    def remove(self, *, deadline: float) -> None:
        """Remove all groups of the run, and with the last run the parent of all runs.

        Raises:
            HostError: a group is still in use at the deadline (``time.monotonic``); names its pids.
        """
        for tree in self.hierarchies:
            Group(self._folder(tree), tree.version).remove_tree(deadline=deadline)
            with suppress(OSError):  # it has groups of other runs, or is about to
                self._folder(tree).parent.rmdir()

    def _folder(self, tree: Hierarchy) -> Path:
        return tree.root / self.parent / self.run

    def _trees(self, tree: Hierarchy, names: Sequence[str]) -> list[Group]:
        """Return the run's groups in a hierarchy, or those with these names; all below included."""
        tops = [self._folder(tree) / name for name in names] or [self._folder(tree)]
        return [group for top in tops for group in Group(top, tree.version).tree()]


def find_runs(hierarchies: Sequence[Hierarchy], parent: str = PARENT) -> list[str]:
    """Return the names of all runs that have a control group below the parent on this host."""
    parents = [Group(tree.root / parent, tree.version) for tree in hierarchies]
    return sorted({run.folder.name for parent in parents for run in parent.children()})


def _make(folder: Path) -> None:
    """Create a run's folder. The last other run may remove the parent of all runs at any time."""
    for _ in range(ATTEMPTS):
        with suppress(FileExistsError):
            folder.parent.mkdir()
        with suppress(FileNotFoundError):
            folder.mkdir()
            return
    folder.mkdir()


def _delegate(folder: Path, tree: Hierarchy) -> None:
    """Version 2: enable the controllers for the groups below a folder."""
    names = sorted(tree.controllers - {"freezer"})
    (folder / SUBTREE).write_text(" ".join(f"+{name}" for name in names))


def _divided(tree: Hierarchy) -> bool:
    return tree.controllers - {"freezer"} <= {*(tree.root / SUBTREE).read_text().split()}


@contextmanager
def _locked(folder: Path, kind: int) -> Iterator[None]:
    """Hold a lock on a folder; BlockingIOError with LOCK_NB if another process holds it."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, kind)
        yield
    finally:
        os.close(handle)


def _move_all(source: Path, target: Path) -> None:
    """Move every process of one group into another, which is created for that."""
    try:
        target.mkdir(exist_ok=True)
        while pids := Group(source, 2).pids():
            for pid in pids:
                with suppress(ProcessLookupError):  # it has just ended
                    (target / PROCESSES).write_text(str(pid))
    except OSError as error:
        raise HostError(
            f"the processes in {source} cannot be moved to {target}: {error.strerror}.",
            hint="It must be empty before control groups can be created below it.",
        ) from None
