"""What is worked out before anything starts: the run's name, folder, data and launches."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from testbed.agent.launch import Launch
from testbed.errors import Problem, ScenarioError
from testbed.network.ends import Neighbour
from testbed.network.offloads import network_for
from testbed.runtimes.base import Cell, Mount, Start, Template
from testbed.runtimes.users import Users
from testbed.scenario.schema import Scenario
from testbed.telemetry.folder import RunFolder
from testbed.topology import NodeSpec, Plan

INSIDE = Path("/run/testbed")
"""Where a node finds what it needs."""

PORT = 5000
ENTRIES: Mapping[str, str] = {
    "ps": "testbed.roles.ps:main",
    "evaluator": "testbed.roles.evaluator:main",
    "worker": "testbed.roles.worker:main",
}
WARM_UP = "testbed.roles.warm_up:main"


@dataclass(frozen=True)
class Setup:
    """One run, ready to be started.

    Attributes:
        scenario: what is to be run.
        plan: its nodes and links.
        folder: the run's folder.
        data: folder of the prepared data set.
        token: what every message to the PS must carry.
        users: where the nodes' uids come from.
    """

    scenario: Scenario
    plan: Plan
    folder: RunFolder
    data: Path
    token: str
    users: Users

    def start(self) -> Start:
        """How the run's agent is to be started."""
        return Start(template=self.template(), users=self.users, reads=(self.data,))

    def cell(self, node: NodeSpec) -> Cell:
        """What a node's container has to have."""
        return Cell(node, self._mounts(node), self.folder.log(node.name))

    def launch(self, node: NodeSpec) -> Launch:
        """How the agent is to start a node."""
        server = self.plan.ps
        assert server.link is not None
        if node.role == "ps":
            peers = self.plan.workers
        else:
            peers = (server,) if node.link is not None else ()
        return Launch(
            node=node,
            network=network_for(node, self.plan),
            entry=ENTRIES[node.role],
            arguments={
                "node": node.name,
                "index": str(node.index),
                "folder": str(INSIDE),
                "server": f"{server.link.address}:{PORT}",
                "token": self.token,
            },
            mounts=self._mounts(node),
            log=self.folder.log(node.name),
            mode=self.plan.launch,
            neighbours=tuple(
                Neighbour(peer.link.address, peer.link.mac) for peer in peers if peer.link
            ),
        )

    def template(self) -> Template:
        """What warm nodes are forked from; cold ones need no template."""
        if self.plan.launch == "cold":
            return Template()
        modules = tuple(entry.partition(":")[0] for entry in ENTRIES.values())
        return Template(
            preload=modules,
            warm_up=WARM_UP,
            arguments={"scenario": str(self.folder.scenario), "data": str(self.data)},
        )

    def _mounts(self, node: NodeSpec) -> tuple[Mount, ...]:
        mounts = [
            Mount(self.folder.scenario, INSIDE / "scenario.yaml", writable=False),
            Mount(self.data, INSIDE / "data", writable=False),
        ]
        if (custom := self.folder.path / "custom").is_dir():
            mounts.append(Mount(custom, INSIDE / "custom", writable=False))
        if node.role != "worker":
            mounts.append(Mount(self.folder.ps, INSIDE / "ps", writable=node.role == "ps"))
        return tuple(mounts)


def custom_files(scenario: Scenario, beside: Path) -> tuple[Path, ...]:
    """The user's own files that a scenario names, which are copied into the run's folder.

    Args:
        scenario: the scenario.
        beside: folder of the scenario file, which the names are relative to.

    Raises:
        ScenarioError: two of them have the same name.
    """
    members = (scenario.model, scenario.dataset)
    files = [beside / member.file for member in members if member.name == "custom"]
    distinct = {file.resolve() for file in files}
    if len({file.name for file in distinct}) < len(distinct):
        expected = "another name than the model's file has: both are copied into one folder"
        raise ScenarioError([Problem("scenario", 0, "dataset.file", str(files[1]), expected)])
    return tuple(sorted(distinct))


def new_token() -> str:
    """A token that nobody guesses."""
    return secrets.token_hex(16)


def run_name(scenario: str, *, now: float, taken: Path) -> str:
    """A name for a run: the scenario's, the time, and a number where that is taken."""
    moment = datetime.fromtimestamp(now, UTC).strftime("%m%d-%H%M%S")
    name = f"{scenario}-{moment}"
    number = 1
    while os.path.lexists(taken / name):
        number += 1
        name = f"{scenario}-{moment}-{number}"
    return name
