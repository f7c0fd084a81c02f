"""What is determined before anything starts: the run's name, folder, inputs and launches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from testbed.host.gpus import device_nodes
from testbed.host.kafka import KafkaFiles
from testbed.host.users import Users
from testbed.models.compute import CUDA
from testbed.network.interfaces import Neighbour
from testbed.network.offloads import network_for
from testbed.plan.nodes import role_of
from testbed.plan.nodes.base import INSIDE, Inputs
from testbed.plan.nodes.compute import shares_compute
from testbed.plan.nodes.program import FILES, HOME
from testbed.plan.nodes.ps import PORT
from testbed.rpc.tokens import token_of
from testbed.runtimes.agent.launch import HOSTS, LAUNCH, LaunchSpec, Mount
from testbed.runtimes.agent.settings import Template
from testbed.runtimes.base import ContainerSpec, Request, RuntimeDriver, Start
from testbed.scenario.direction import Recording
from testbed.scenario.own_code import own_code
from testbed.scenario.schema import Scenario
from testbed.scenario.traces import recording
from testbed.scenario.workload import Workload
from testbed.telemetry.folder import RunFolder
from testbed.values.topology import NodeSpec, Plan

WARM_UP = "testbed.roles.warm_up:main"

VISIBLE = "CUDA_VISIBLE_DEVICES"
"""The variable that selects the GPUs which CUDA shows to a process."""


@dataclass(frozen=True)
class Setup(ABC):
    """One run, ready to be started, whatever its nodes do."""

    plan: Plan
    folder: RunFolder
    users: Users  # where the nodes' uids come from

    @property
    @abstractmethod
    def engine(self) -> bool:
        """Whether an engine creates the containers."""

    @abstractmethod
    def start(self) -> Start:
        """Return how to start the run's agent."""

    @abstractmethod
    def mounts(self, node: NodeSpec) -> tuple[Mount, ...]:
        """Return what a node sees, apart from the names of all nodes and the scenario's folders."""

    def arguments(self, node: NodeSpec) -> Mapping[str, str]:
        """Return the arguments of a node's entry point; none for a command."""
        return {}

    def container(self, node: NodeSpec) -> ContainerSpec:
        """Return the requirements on a node's container."""
        return ContainerSpec(node, self._mounts(node), self.folder.log(node.name))

    def launch(self, node: NodeSpec) -> LaunchSpec:
        """Return the agent's request for a node."""
        role = role_of(node)
        peers = role.neighbours(node, self.plan)
        return LaunchSpec(
            node=node,
            network=network_for(node, self.plan),
            entry=role.entry,
            arguments=self.arguments(node) if role.entry else {},
            mounts=self._mounts(node),
            log=self.folder.log(node.name),
            mode=self.plan.launch_of(node),
            neighbours=tuple(
                Neighbour(peer.link.address, peer.link.mac, self.plan.route(node, peer))
                for peer in peers
                if peer.link is not None
            ),
            environment={**node.environment, **_visible(node)},
            home=HOME if node.part == "peer" else None,
            held=self.plan.holds(node),
        )

    def requests(self, driver: RuntimeDriver) -> tuple[Request, ...]:
        """Return all requests of a bring-up, to the engine and the agent.

        Exact except for pids, and for workers that are absent at first: they come later, unheld.
        """
        nodes = self.plan.nodes
        specs = [self.container(node) for node in nodes]
        launches = (LAUNCH.dump_python(self.launch(node), mode="json") for node in nodes)
        return (
            *driver.requests(self.plan, self.folder, self.start(), specs),
            *(
                Request("agent", f"launch {node.name}", launch)
                for node, launch in zip(nodes, launches, strict=True)
            ),
        )

    def _mounts(self, node: NodeSpec) -> tuple[Mount, ...]:
        """Return the mounts for its role, the names of all nodes, its folders, and its GPUs."""
        # An engine has its own way to give GPUs to a container.
        gpus = () if self.engine else device_nodes(node.dealt)
        shown = (Mount(path, path) for path in (*map(Path, node.folders), *gpus))
        return (*self.mounts(node), Mount(self.folder.hosts, HOSTS), *shown)


def _visible(node: NodeSpec) -> Mapping[str, str]:
    return {VISIBLE: ",".join(gpu.uuid for gpu in node.dealt)} if node.gpus else {}


@dataclass(frozen=True)
class TrainingSetup(Setup):
    """A training, with its data and the secret that the nodes' tokens are made with."""

    scenario: Scenario
    data: Path  # folder of the prepared data set
    secret: str
    kafka: KafkaFiles | None = None  # of this host, if its broker is started from them

    @property
    def engine(self) -> bool:
        return self.scenario.runtime.capabilities.engine

    def start(self) -> Start:
        """Return how to start the run's agent."""
        return Start(template=self.template(), users=self.users, reads=(self.data,))

    def mounts(self, node: NodeSpec) -> tuple[Mount, ...]:
        """Return what a node of its role reads and writes of the run."""
        recorded = isinstance(self.scenario.workers.availability, Recording)
        own = bool(own_code(self.scenario)) or recorded or recording(self.scenario) is not None
        shared = shares_compute(self.plan)
        inputs = Inputs(self.folder, self.data, own, kafka=self.kafka, shared_compute=shared)
        return role_of(node).mounts(inputs)

    def arguments(self, node: NodeSpec) -> Mapping[str, str]:
        """Return the arguments of a node's entry point."""
        assert self.plan.ps.link is not None
        gpu = {"device": CUDA, "gpu_memory": str(node.gpu_memory)} if node.gpus else {}
        return {
            "node": node.name,
            "index": str(node.index),
            "folder": str(INSIDE),
            "server": f"{self.plan.ps.link.address}:{PORT}",
            "token": self.secret if node.part == "server" else token_of(self.secret, node.name),
            **role_of(node).arguments(node, self.plan, secret=self.secret),
            **gpu,
        }

    def template(self) -> Template:
        """Return the template that warm nodes are forked from; cold ones need no template."""
        if self.plan.launch == "cold":
            return Template()
        entries = dict.fromkeys(role_of(node).entry for node in self.plan.nodes)
        modules = tuple(entry.partition(":")[0] for entry in entries if entry)
        return Template(
            preload=modules,
            warm_up=WARM_UP,
            arguments={"scenario": str(self.folder.scenario), "data": str(self.data)},
            forks=len(self.plan.nodes),
        )


@dataclass(frozen=True)
class WorkloadSetup(Setup):
    """A workload, whose nodes run commands and see their files."""

    workload: Workload

    @property
    def engine(self) -> bool:
        return self.workload.runtime.capabilities.engine

    def start(self) -> Start:
        """Return how to start the run's agent."""
        return Start(users=self.users)

    def mounts(self, node: NodeSpec) -> tuple[Mount, ...]:
        """Return a node's home, and the files that it was given."""
        home = Mount(self.folder.home(node.name), HOME, writable=True)
        sources = (self.folder.path / file for file in node.files)
        return (home, *(Mount(source, FILES / source.name) for source in sources))
