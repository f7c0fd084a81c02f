"""The native runtime: containers made of namespaces and control groups, without an engine.

On the host a run has a name in two places only: its run folder, and its control groups
``testbed/<run>``, which an ordinary user has only where a part of the groups is delegated.
Everything else lives in namespaces that end with the agent, the first process of the run's pid
namespace. Nothing is put into the host's network namespace.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from testbed.errors import NodeError
from testbed.runtimes.agents import all_of, find_agents, first_of
from testbed.runtimes.base import Cell, Condition, HostState, NodeState, Request, Start
from testbed.runtimes.cells import Cells
from testbed.runtimes.cgroups import RunGroups, find_runs
from testbed.runtimes.environment import python
from testbed.runtimes.hierarchies import Hierarchy, find_delegated, find_hierarchies
from testbed.runtimes.lifeline import (
    STOP_SECONDS,
    NativeLifeline,
    clear,
    end_agent,
    own,
    read_record,
    read_settings,
)
from testbed.runtimes.limits import Limits
from testbed.runtimes.lock import attempts
from testbed.runtimes.process import Process
from testbed.runtimes.roster import Roster
from testbed.runtimes.users import find_users
from testbed.telemetry.folder import RunFolder, is_gone
from testbed.topology import NodeSpec, Plan

NAMESPACES = "ipc mnt net pid uts"


@dataclass(frozen=True)
class NativeDriver:
    """See RuntimeDriver.

    Attributes:
        hierarchies: where control groups are made; None for where this host has them.
        stop_seconds: how long ``stop`` waits for what is being ended.
    """

    hierarchies: tuple[Hierarchy, ...] | None = None
    stop_seconds: float = STOP_SECONDS

    def requests(self, plan: Plan) -> tuple[Request, ...]:
        """What the agent will make for every node. Pure: touches nothing."""
        return tuple(Request(node.name, _options(node, plan)) for node in plan.nodes)

    def start(self, plan: Plan, folder: RunFolder, start: Start) -> NativeLifeline:
        """Start the run's agent; returns once it takes orders."""
        groups = RunGroups(folder.name, self._trees())
        groups.check(plan.nodes)
        users = start.users or find_users()
        return NativeLifeline.begin(folder, groups, start=replace(start, users=users))

    def contain(self, plan: Plan, folder: RunFolder, cells: Sequence[Cell]) -> Mapping[str, int]:
        """Nothing to do: the agent makes a node's namespaces when it launches it."""
        return {}

    def discard(self, folder: RunFolder, nodes: Sequence[str]) -> None:
        """Nothing to do: what a node had has ended with its role."""

    def stop(self, folder: RunFolder) -> None:
        """End a run and remove everything it has on this host, whoever started it."""
        deadline = time.monotonic() + self.stop_seconds
        for _ in attempts(folder, within_seconds=self.stop_seconds):
            groups = self._groups(folder)
            end_agent(_agent_of(folder), groups, deadline=deadline)
            with folder.locked() as mine:
                if mine:
                    clear(folder, groups, deadline=deadline)
                    if not all_of(folder.path):
                        return
            # Somebody is about to record an agent, or has not noticed yet that it has ended.

    def exec(self, folder: RunFolder, node: str, command: Sequence[str]) -> int:
        """Run a command in a node, with the node's restrictions; returns its exit status."""
        cells = self._cells(folder)
        state = _state(cells, node)
        if state.pid is None or state.condition != "running":
            raise NodeError(f"{node} is {state.condition}: nothing can be run in it.")
        where = json.dumps(
            {
                "process": str(Process.of(state.pid)),
                "entrances": [str(path) for path in cells.entrances(node)],
            }
        )
        entering = subprocess.run(python("testbed.agent.enter", where, *command), check=False)
        return entering.returncode

    def logs(self, folder: RunFolder, node: str) -> bytes:
        """What a node has printed so far."""
        return folder.read_log(node)

    def state(self, folder: RunFolder) -> HostState:
        """What there is of a run on this host now."""
        agent = _agent_of(folder)
        cells = self._cells(folder)
        return HostState(
            alive=agent is not None and agent.alive(),
            nodes=tuple(_state(cells, node) for node in cells.nodes()),
        )

    def freeze(self, folder: RunFolder, node: str) -> None:
        """Stop a node's processes where they are."""
        self._cells(folder).freeze(node)

    def thaw(self, folder: RunFolder, node: str) -> None:
        """Let a frozen node go on."""
        self._cells(folder).thaw(node)

    def find(self) -> tuple[str, ...]:
        """The names of all runs that have something on this host, with or without a folder."""
        living = {settings.folder.name for _, settings in find_agents()}
        return tuple(sorted({*find_runs(self._trees()), *living}))

    def find_orphans(self) -> tuple[RunFolder, ...]:
        """Runs that have something on this host, and whose folder has been deleted."""
        folders = {settings.folder for _, settings in find_agents()}
        return tuple(RunFolder(path) for path in sorted(folders) if is_gone(path))

    def check(self, nodes: Iterable[NodeSpec]) -> None:
        """Refuse limits that this user cannot have enforced on this host.

        Raises:
            HostError: a node has one, or CPUs that are missing; names it, and the cure.
        """
        RunGroups("", self._trees()).check(nodes)

    def _cells(self, folder: RunFolder) -> Cells:
        groups = self._groups(folder)
        if groups.has("freezer"):
            return groups
        return Roster(folder).of(_agent_of(folder))

    def _groups(self, folder: RunFolder) -> RunGroups:
        """The run's control groups: root's are where they always are, others' are on record."""
        trees = self._trees()
        if os.geteuid() != 0 and (settings := read_settings(folder)) is not None:
            trees = settings.hierarchies
        return own(RunGroups(folder.name, trees), folder)

    def _trees(self) -> tuple[Hierarchy, ...]:
        if self.hierarchies is not None:
            return self.hierarchies
        return find_hierarchies() if os.geteuid() == 0 else find_delegated()


def _state(cells: Cells, node: str) -> NodeState:
    first = cells.first(node)
    if first is None:
        return NodeState(node, "ended", None)
    condition: Condition = "frozen" if cells.is_frozen(node) else "running"
    return NodeState(node, condition, first)


def _agent_of(folder: RunFolder) -> Process | None:
    """The run's agent, dead or alive: as it is on record, or is seen where the folder is gone."""
    if (recorded := read_record(folder)) is not None or folder.path.exists():
        return recorded
    return first_of(folder.path)


def _options(node: NodeSpec, plan: Plan) -> dict[str, str]:
    limits = Limits.of(node)
    return {
        "namespaces": NAMESPACES,
        "hostname": node.name,
        "uid": str(node.uid),
        "launch": plan.launch,
        "cgroup": f"testbed/{plan.run}/{node.name}",
        "cpu weight": str(limits.cpu_weight),
        "cpu": "no limit" if limits.cpu is None else f"{limits.cpu:g}",
        "cpuset": limits.cpuset or "no limit",
        "memory": "no limit" if limits.memory is None else str(limits.memory),
        "pids": str(limits.pids),
    }
