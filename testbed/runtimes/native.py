"""The native runtime: containers made of namespaces and control groups, without an engine.

On the host a run has a name in two places only: its run folder, and its control groups
``testbed/<run>``. Everything else lives in namespaces that end with the agent, the first process of
the run's pid namespace. Nothing is put into the host's network namespace.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from testbed.errors import HostError, NodeError
from testbed.runtimes.base import Condition, HostState, NodeState, Request, Start
from testbed.runtimes.cgroups import AGENT_GROUP, RunGroups, find_runs
from testbed.runtimes.environment import python
from testbed.runtimes.hierarchies import Hierarchy, find_hierarchies
from testbed.runtimes.lifeline import (
    POLL_SECONDS,
    STOP_SECONDS,
    NativeLifeline,
    clear,
    end_agent,
    own,
    read_record,
)
from testbed.runtimes.limits import Limits
from testbed.runtimes.process import Process, namespace_pids
from testbed.telemetry.folder import RunFolder
from testbed.topology import NodeSpec, Plan

NAMESPACES = "ipc mnt net pid uts"


@dataclass(frozen=True)
class NativeDriver:
    """See RuntimeDriver.

    Attributes:
        hierarchies: where control groups are made; None for where this host has them.
    """

    hierarchies: tuple[Hierarchy, ...] | None = None

    def requests(self, plan: Plan) -> tuple[Request, ...]:
        """What the agent will make for every node. Pure: touches nothing."""
        return tuple(Request(node.name, _options(node, plan)) for node in plan.nodes)

    def start(self, plan: Plan, folder: RunFolder, start: Start) -> NativeLifeline:
        """Start the run's agent; returns once it takes orders."""
        require_root()
        return NativeLifeline.begin(folder, RunGroups(folder.name, self._trees()), start=start)

    def stop(self, folder: RunFolder) -> None:
        """End a run and remove everything it has on this host, whoever started it."""
        deadline = time.monotonic() + STOP_SECONDS
        while True:
            groups = self._groups(folder)
            end_agent(read_record(folder), groups, deadline=deadline)
            with folder.locked() as mine:
                if mine:
                    clear(folder, groups, deadline=deadline)
                    return
            # Somebody is about to record an agent, or has not noticed yet that it has ended.
            if time.monotonic() > deadline:
                raise NodeError(
                    f"{folder.lock} is still held after {STOP_SECONDS:g} s.",
                    hint="End the testbed process that started the run (its pid is in that file).",
                )
            time.sleep(POLL_SECONDS)

    def exec(self, folder: RunFolder, node: str, command: Sequence[str]) -> int:
        """Run a command in a node, with the node's restrictions; returns its exit status."""
        require_root()
        groups = self._groups(folder)
        state = self._node(groups, node)
        if state.pid is None or state.condition != "running":
            raise NodeError(f"{node} is {state.condition}: nothing can be run in it.")
        where = json.dumps(
            {
                "process": str(Process.of(state.pid)),
                "entrances": [str(path) for path in groups.entrances(node)],
            }
        )
        entering = subprocess.run(python("testbed.agent.enter", where, *command), check=False)
        return entering.returncode

    def logs(self, folder: RunFolder, node: str) -> bytes:
        """What a node has printed so far."""
        try:
            return folder.log(node).read_bytes()
        except FileNotFoundError:
            raise NodeError(f"{folder.log(node)}: no such log.") from None

    def state(self, folder: RunFolder) -> HostState:
        """What there is of a run on this host now."""
        agent = read_record(folder)
        groups = self._groups(folder)
        nodes = [node for node in groups.nodes() if node != AGENT_GROUP]
        return HostState(
            alive=agent is not None and agent.alive(),
            nodes=tuple(self._node(groups, node) for node in nodes),
        )

    def freeze(self, folder: RunFolder, node: str) -> None:
        """Stop a node's processes where they are."""
        self._groups(folder).freeze(node)

    def thaw(self, folder: RunFolder, node: str) -> None:
        """Let a frozen node go on."""
        self._groups(folder).thaw(node)

    def find(self) -> tuple[str, ...]:
        """The names of all runs that have something on this host, with or without a folder."""
        return tuple(find_runs(self._trees()))

    def _groups(self, folder: RunFolder) -> RunGroups:
        return own(RunGroups(folder.name, self._trees()), folder)

    def _trees(self) -> tuple[Hierarchy, ...]:
        return find_hierarchies() if self.hierarchies is None else self.hierarchies

    def _node(self, groups: RunGroups, node: str) -> NodeState:
        first = next((pid for pid in groups.processes(node) if _is_first(pid)), None)
        if first is None:
            return NodeState(node, "ended", None)
        condition: Condition = "frozen" if groups.is_frozen(node) else "running"
        return NodeState(node, condition, first)


def require_root() -> None:
    """Refuse what only root can do yet.

    Raises:
        HostError: this is no Linux, or the user is not root.
    """
    if sys.platform != "linux":
        raise HostError(f"the native runtime needs Linux; this is {sys.platform}.")
    if os.geteuid() != 0:
        raise HostError(
            "the native runtime needs root for its namespaces and control groups.",
            hint="Run it with sudo.",
        )


def _is_first(pid: int) -> bool:
    """Whether a process is the first of its own pid namespace: a node's role."""
    try:
        return namespace_pids(pid)[-1] == 1
    except ProcessLookupError:
        return False


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
        "memory": "no limit" if limits.memory is None else str(limits.memory),
        "pids": str(limits.pids),
    }
