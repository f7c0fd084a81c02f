"""The native runtime: containers made of namespaces and control groups, without an engine.

On the host, a run's name appears in two places only: its run folder, and its control groups
``testbed/<run>``, which an unprivileged user has only in a delegated part of the hierarchy.
Everything else is in namespaces that end with the agent, the first process of the run's pid
namespace. Nothing is put into the host's network namespace.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from testbed.errors import NodeError
from testbed.host.cgroups import PARENT, RunGroups, find_runs
from testbed.host.gpus import check_gpus
from testbed.host.hierarchies import Hierarchy, find_delegated, find_hierarchies
from testbed.host.limits import require_files
from testbed.host.process import Process
from testbed.host.users import Users, find_users
from testbed.runtimes.agent.launch import NodeState
from testbed.runtimes.agent.settings import OWN_CONTAINERS, all_of, find_agents, first_of
from testbed.runtimes.base import STOP_SECONDS, ContainerSpec, Finding, Request, Start
from testbed.runtimes.lock import attempts, is_orphan
from testbed.runtimes.native.lifeline import (
    NativeLifeline,
    clear,
    end_agent,
    own,
    read_record,
    read_settings,
    settings_for,
)
from testbed.runtimes.native.session import run_in
from testbed.telemetry.folder import RunFolder
from testbed.telemetry.host import torch_build
from testbed.values.topology import NodeSpec, Plan


@dataclass(frozen=True)
class NativeDriver:
    """Implements RuntimeDriver, which documents the methods.

    Attributes:
        hierarchies: where control groups are created; None for this host's default.
        stop_seconds: how long ``stop`` waits for processes to end.
        agent_main: entry point of the agent.
        groups_parent: name of the control group above those of all runs.
    """

    agent_main: ClassVar[str] = OWN_CONTAINERS
    groups_parent: ClassVar[str] = PARENT

    hierarchies: tuple[Hierarchy, ...] | None = None
    stop_seconds: float = STOP_SECONDS

    def requests(
        self, plan: Plan, folder: RunFolder, start: Start, specs: Sequence[ContainerSpec]
    ) -> tuple[Request, ...]:
        """Return the agent's settings; it creates the containers itself. Pure."""
        told = settings_for(plan, folder, replace(start, users=start.users or Users("root")), ())
        told = replace(told, main=self.agent_main)
        return (Request("agent", "start", json.loads(told.to_json())),)

    def examine(self, *, workers: int, gpu: bool, broker: bool) -> Iterator[Finding]:
        return iter(())  # without an engine, what this user needs is all

    def start(self, plan: Plan, folder: RunFolder, start: Start) -> NativeLifeline:
        groups = self._run_groups(folder, self._trees())
        groups.check(plan.nodes)
        start = replace(start, users=start.users or find_users())
        settings = settings_for(plan, folder, start, groups.hierarchies)
        settings = replace(settings, main=self.agent_main)
        return NativeLifeline.begin(folder, groups, start=start, settings=settings)

    def contain(
        self, plan: Plan, folder: RunFolder, specs: Sequence[ContainerSpec]
    ) -> Mapping[str, int]:
        """Do nothing: the agent creates a node's namespaces when it launches the node."""
        return {}

    def discard(self, folder: RunFolder, nodes: Sequence[str]) -> None:
        """Do nothing: a node's resources ended with its role."""

    def stop(self, folder: RunFolder) -> tuple[str, ...]:
        deadline = time.monotonic() + self.stop_seconds
        for _ in attempts(folder, within_seconds=self.stop_seconds):
            groups = self._groups(folder)
            end_agent(_agent_of(folder), groups, deadline=deadline)
            with folder.locked() as mine:
                if mine:
                    clear(folder, groups, deadline=deadline)
                    if not all_of(folder.path):
                        break
            # A controller is about to record an agent, or has not noticed yet that it has ended.
        return ()

    def exec(self, folder: RunFolder, node: NodeState, command: Sequence[str]) -> int:
        if node.pid is None:
            raise NodeError(f"{node.node} has ended.")
        entrances = [str(path) for path in node.entrances]
        return run_in({"process": str(Process.of(node.pid)), "entrances": entrances}, command)

    def find(self) -> tuple[str, ...]:
        living = {settings.folder.name for _, settings in find_agents(self.agent_main)}
        return tuple(sorted({*find_runs(self._trees(), self.groups_parent), *living}))

    def find_orphans(self) -> tuple[RunFolder, ...]:
        folders = {settings.folder for _, settings in find_agents(self.agent_main)}
        return tuple(filter(is_orphan, map(RunFolder, sorted(folders))))

    def check(self, nodes: Iterable[NodeSpec]) -> Mapping[str, str]:
        all_nodes = list(nodes)
        require_files(len(all_nodes))
        self._run_groups(RunFolder(Path()), self._trees()).check(all_nodes)
        check_gpus(all_nodes, build=torch_build())
        return {}

    def _groups(self, folder: RunFolder) -> RunGroups:
        """Return the run's control groups: at the fixed path for root, as recorded for others."""
        trees = self._trees()
        if os.geteuid() != 0 and (settings := read_settings(folder)) is not None:
            trees = settings.hierarchies
        agents = [settings for _, settings in find_agents(self.agent_main)]
        return own(self._run_groups(folder, trees), folder, agents=agents)

    def _run_groups(self, folder: RunFolder, trees: tuple[Hierarchy, ...]) -> RunGroups:
        return RunGroups(folder.name, trees)

    def _trees(self) -> tuple[Hierarchy, ...]:
        if self.hierarchies is not None:
            return self.hierarchies
        return find_hierarchies() if os.geteuid() == 0 else find_delegated()


def _agent_of(folder: RunFolder) -> Process | None:
    """Return the run's agent, dead or alive: by its record, or from /proc without a folder."""
    if (recorded := read_record(folder)) is not None or folder.path.exists():
        return recorded
    return first_of(folder.path)
