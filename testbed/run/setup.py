"""What is determined before anything starts: the run's name, folder, data and launches."""

from __future__ import annotations

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
from testbed.plan.nodes.ps import PORT
from testbed.rpc.tokens import token_of
from testbed.runtimes.agent.launch import HOSTS, LAUNCH, LaunchSpec, Mount
from testbed.runtimes.agent.settings import Template
from testbed.runtimes.base import ContainerSpec, Request, RuntimeDriver, Start
from testbed.scenario.direction import Recording
from testbed.scenario.own_code import own_code
from testbed.scenario.schema import Scenario
from testbed.scenario.traces import recording
from testbed.telemetry.folder import RunFolder
from testbed.values.topology import NodeSpec, Plan

WARM_UP = "testbed.roles.warm_up:main"

VISIBLE = "CUDA_VISIBLE_DEVICES"
"""The variable that selects the GPUs which CUDA shows to a process."""


@dataclass(frozen=True)
class Setup:
    """One run, ready to be started."""

    scenario: Scenario
    plan: Plan
    folder: RunFolder
    data: Path  # folder of the prepared data set
    secret: str  # of the run: the nodes' tokens are made with it
    users: Users  # where the nodes' uids come from
    kafka: KafkaFiles | None = None  # of this host, if its broker is started from them

    def start(self) -> Start:
        """Return how to start the run's agent."""
        return Start(template=self.template(), users=self.users, reads=(self.data,))

    def container(self, node: NodeSpec) -> ContainerSpec:
        """Return the requirements on a node's container."""
        return ContainerSpec(node, self._mounts(node), self.folder.log(node.name))

    def launch(self, node: NodeSpec) -> LaunchSpec:
        """Return the agent's request for a node."""
        role = role_of(node)
        links = [peer.link for peer in role.neighbours(node, self.plan)]
        assert self.plan.ps.link is not None
        arguments = {
            "node": node.name,
            "index": str(node.index),
            "folder": str(INSIDE),
            "server": f"{self.plan.ps.link.address}:{PORT}",
            "token": self.secret if node.part == "server" else token_of(self.secret, node.name),
            **role.arguments(node, self.plan, secret=self.secret),
        }
        if node.gpus:
            arguments |= {"device": CUDA, "gpu_memory": str(node.gpu_memory)}
        return LaunchSpec(
            node=node,
            network=network_for(node, self.plan),
            entry=role.entry,
            arguments=arguments if role.entry else {},
            mounts=self._mounts(node),
            log=self.folder.log(node.name),
            mode=self.plan.launch_of(node),
            environment={VISIBLE: ",".join(gpu.uuid for gpu in node.dealt)} if node.gpus else {},
            neighbours=tuple(
                Neighbour(link.address, link.mac) for link in links if link is not None
            ),
        )

    def requests(self, driver: RuntimeDriver) -> tuple[Request, ...]:
        """Return all requests of a bring-up, exact except for pids: to the engine and the agent."""
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
        engine = self.scenario.runtime.capabilities.engine
        gpus = () if engine else device_nodes(node.dealt)
        shown = (Mount(path, path) for path in (*map(Path, node.folders), *gpus))
        return (*role_of(node).mounts(self._inputs), Mount(self.folder.hosts, HOSTS), *shown)

    @property
    def _inputs(self) -> Inputs:
        recorded = isinstance(self.scenario.workers.availability, Recording)
        own = bool(own_code(self.scenario)) or recorded or recording(self.scenario) is not None
        return Inputs(self.folder, self.data, own_files=own, kafka=self.kafka)

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
