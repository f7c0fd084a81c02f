"""The LXC runtime: an LXC container for every node, in the host's pid namespace.

The agent is a process of the host, started as that of a native run; see testbed.runtimes.lxc.agent.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from testbed.errors import HostError, NodeError, TestbedError
from testbed.host.hierarchies import Hierarchy
from testbed.host.limits import Limits
from testbed.host.process import is_first
from testbed.runtimes.base import (
    STOP_SECONDS,
    ContainerSpec,
    Finding,
    Request,
    Start,
    container_name,
)
from testbed.runtimes.lock import is_orphan
from testbed.runtimes.lxc.containers import View, configuration
from testbed.runtimes.lxc.doctor import examine_lxc, require_lxc
from testbed.runtimes.lxc.groups import (
    PARENT,
    LxcGroups,
    Record,
    containers_folder,
    find_records,
    find_trees,
    lxc_folder,
    read_record,
)
from testbed.runtimes.lxc.root_system import RootSystem
from testbed.runtimes.lxc.unprivileged import (
    FIRST,
    end,
    entering,
    find_first,
    first_process,
    require_range,
)
from testbed.runtimes.native.driver import NativeDriver
from testbed.runtimes.native.lifeline import NativeLifeline
from testbed.runtimes.parallel import in_parallel
from testbed.telemetry.folder import RunFolder
from testbed.values.topology import NodeSpec, Plan

START_SECONDS = 60.0

IN_GROUP = ("sh", "-c", 'echo 0 > "$0" && exec "$@"')
"""Runs a command in a control group: no process that it starts can be missed when the run ends."""

COMMAND = ("sleep", "infinity")
"""What LXC's own first process starts. That process reaps the node's orphans."""

ERROR = re.compile(r" ERROR +\S+ - \S+ - (?!.*Continuing\.\.\.$)(.*)", re.MULTILINE)


@dataclass(frozen=True)
class LxcDriver(NativeDriver):
    """Implements RuntimeDriver, which documents the methods.

    Attributes:
        system: the root file system of the containers; by default the host's programs.
    """

    system: RootSystem | None = None

    agent_main: ClassVar[str] = "testbed.runtimes.lxc.agent:main"
    groups_parent: ClassVar[str] = PARENT

    def requests(
        self, plan: Plan, folder: RunFolder, start: Start, specs: Sequence[ContainerSpec]
    ) -> tuple[Request, ...]:
        """Return the agent's settings, and the containers without the host's programs. Pure."""
        containers = (
            Request(
                "lxc",
                f"create {spec.node.name}",
                {"config": configuration(spec, folder.path, Path("rootfs"), View(spec.mounts))},
            )
            for spec in specs
        )
        return (*super().requests(plan, folder, start, specs), *containers)

    def check(self, nodes: Iterable[NodeSpec]) -> Mapping[str, str]:
        require_lxc()
        if self.system is not None:
            self.system.check()
        return super().check(nodes)

    def examine(self, *, workers: int, gpu: bool, broker: bool) -> Iterator[Finding]:
        return examine_lxc()

    def start(self, plan: Plan, folder: RunFolder, start: Start) -> NativeLifeline:
        require_lxc()
        if start.users is not None:
            require_range(start.users)
        return super().start(plan, folder, start)

    def contain(
        self, plan: Plan, folder: RunFolder, specs: Sequence[ContainerSpec]
    ) -> Mapping[str, int]:
        groups = LxcGroups.of(folder.path, self._trees())
        for spec in specs:
            if _is_running(spec.node.name, groups):
                raise NodeError(f"{spec.node.name} is already running.")
        try:
            views = [View.of(spec, self.system) for spec in specs]
            roots = [_build_root(view, groups) for view in views]
            wanted = zip(specs, views, roots, strict=True)
            pids = in_parallel(lambda one: _create(*one, groups), wanted)
        except BaseException:
            with suppress(TestbedError):  # the first error is more informative
                self.discard(folder, [spec.node.name for spec in specs])
            raise
        return {spec.node.name: pid for spec, pid in zip(specs, pids, strict=True)}

    def discard(self, folder: RunFolder, nodes: Sequence[str]) -> None:
        groups = LxcGroups.of(folder.path, self._trees())
        in_parallel(lambda node: _remove(node, groups), nodes)

    def find(self) -> tuple[str, ...]:
        recorded = {record.run for record in find_records()}
        return tuple(sorted({*super().find(), *recorded}))

    def find_orphans(self) -> tuple[RunFolder, ...]:
        folders = {RunFolder(one.folder) for one in find_records()}
        return tuple({*super().find_orphans(), *filter(is_orphan, folders)})

    def _run_groups(self, folder: RunFolder, trees: tuple[Hierarchy, ...]) -> LxcGroups:
        return LxcGroups.of(folder.path, trees)

    def _trees(self) -> tuple[Hierarchy, ...]:
        return find_trees() if self.hierarchies is None else self.hierarchies


def _is_running(node: str, groups: LxcGroups) -> bool:
    if groups.hierarchies:
        return bool(groups.processes(node))
    return find_first(groups.folder, containers_folder(groups.folder) / node) is not None


def _build_root(view: View, groups: LxcGroups) -> Path:
    """Return a root file system; containers with the same mount points share it."""
    root = containers_folder(groups.folder) / view.digest
    if not root.exists():
        view.build(root)
    return root


def _create(spec: ContainerSpec, view: View, root: Path, groups: LxcGroups) -> int:
    """Create and start a node's container; return the pid of its first process.

    Raises:
        HostError, NodeError: it cannot be created; names it.
    """
    node = spec.node.name
    place, kept = _place(groups, node), containers_folder(groups.folder) / node
    _remove(node, groups)
    kept.mkdir()
    grouped = bool(groups.hierarchies)
    lines = configuration(spec, groups.folder, root, view, grouped=grouped)
    (kept / "config").write_text("\n".join((*lines, "")))
    try:
        Record(place, groups.folder).create(kept)
    except FileExistsError:
        raise HostError(
            f"{place} exists, and is no container of {groups.run}.",
            hint=f"Remove it with `lxc-destroy --force {place.name}`, or choose another --name.",
        ) from None
    _start(node, place, groups)
    if grouped:
        groups.add(node, Limits.of(spec.node))
        first = next((pid for pid in groups.processes(node) if is_first(pid)), None)
    else:
        first = first_process(groups.folder, place)
        if first is not None:
            (kept / FIRST).write_text(str(first))
    if first is None:
        raise NodeError(f"{node}: its container ended as soon as it was started.")
    return first


def _start(node: str, place: Path, groups: LxcGroups) -> None:
    log = place / "log"
    which = ("--lxcpath", str(place.parent), "--name", place.name)
    how = (*which, "--daemon", "--logfile", str(log), "--logpriority", "ERROR")
    try:
        status = subprocess.run(
            [*_into(groups), "lxc-execute", *how, "--", *COMMAND],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=START_SECONDS,
            check=False,
        ).returncode
        ended = f"ended with status {status}"
    except subprocess.TimeoutExpired:
        status, ended = None, f"did not end in {START_SECONDS:g} s"
    if status != 0:
        found = ERROR.findall(log.read_text(errors="replace")) if log.exists() else []
        said = "; ".join(dict.fromkeys(found)) or "it wrote nothing into its log"
        raise NodeError(
            f"{node}: lxc-execute {ended}: {said}.",
            hint="`testbed doctor --runtime lxc` examines this host.",
        )


def _into(groups: LxcGroups) -> tuple[str, ...]:
    """Return the command that executes another where the run's end finds all that it starts."""
    if not groups.hierarchies:
        return entering(groups.folder)
    entrance = groups.entrance()
    if entrance is None:
        raise NodeError(f"the agent of {groups.run} has ended.")
    return (*IN_GROUP, str(entrance))


def _remove(node: str, groups: LxcGroups) -> None:
    """Remove a node's container in any state, whether or not its monitor is alive."""
    deadline = time.monotonic() + STOP_SECONDS
    names = (node, groups.monitor(node))
    groups.kill_all(*names, deadline=deadline)
    for name in names:
        groups.remove_node(name, deadline=deadline)
    place, kept = _place(groups, node), containers_folder(groups.folder) / node
    if not groups.hierarchies:
        end(groups.folder, place, kept, deadline=deadline)
    record = read_record(place)
    if record is not None and record.folder == groups.folder:
        record.remove()
    shutil.rmtree(kept, ignore_errors=True)


def _place(groups: LxcGroups, node: str) -> Path:
    return lxc_folder() / container_name(groups.run, node)
