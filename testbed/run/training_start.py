"""Brings a training up: parameter server, evaluator, workers, which join once all are launched."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from testbed.errors import NodeError, escaped
from testbed.plan.nodes import role_of
from testbed.plan.nodes.compute import ComputeRole
from testbed.run.deploy import LOOK_SECONDS, Deployment
from testbed.run.training_watch import TrainingWatch
from testbed.run.watch import quote_log
from testbed.telemetry.event_kinds import ComputedOneByOne, Phase
from testbed.telemetry.ps_events import Started
from testbed.telemetry.untrusted import read_untrusted
from testbed.values.topology import LaunchMode, NodeSpec

START_SECONDS = 0.01
"""Polling interval while waiting for the start, which recordings and faults are timed by."""

BASE_SECONDS = 60.0
"""Bring-up may take this long, plus, for every node:"""
NODE_SECONDS: Mapping[LaunchMode, float] = {"warm": 0.5, "cold": 4.0}

MOST_STARTING: Mapping[LaunchMode, int] = {"warm": 16, "cold": 4}
"""Maximum number of workers that join, or cold ones that start, at the same time: more would only
slow each other down."""

MOST_SAID_BYTES = 10_000
"""Of a file in which a node says why it does something."""

LAUNCHES_AHEAD = 2
"""Number of nodes requested while another one is launched, so that the agent can begin early."""


@dataclass
class TrainingStart:
    """The bring-up of one training."""

    deployment: Deployment
    watch: TrainingWatch
    absent: Collection[str] = ()  # workers that are absent at the beginning
    computes: str = ""  # where gradients are computed and why, if this was chosen

    def bring_up(self) -> None:
        """Start every node and wait until the training has started.

        Raises:
            NodeError: a node failed, or was not ready by the deadline; names it.
            HostError: the host cannot do what a node needs; names it.
        """
        deployment = self.deployment
        plan, seen = deployment.setup.plan, self.watch.seen
        deployment.create_containers()
        deadline = deployment.clock() + BASE_SECONDS + NODE_SECONDS[plan.launch] * len(plan.nodes)
        there = [node for node in plan.nodes if node.name not in self.absent]
        workers = f"{sum(node.part == 'client' for node in there)} workers"
        computes = f"; compute: {self.computes}" if self.computes else ""
        self.watch.recorder.event(Phase(f"starting the parameter server and {workers}{computes}"))
        starting: list[NodeSpec] = []
        for node in there:
            needs = role_of(node).needs
            needed = [other for other in self._missing(starting) if other.role in needs]
            if needed:
                deployment.settle()
                self._await(lambda: not self._missing(needed), deadline, on_its_way=needed)  # noqa: B023 - at once
            deployment.request(node)
            deployment.settle(but=LAUNCHES_AHEAD)
            starting = self._proceed(starting, () if plan.holds(node) else (node,), deadline)
        deployment.settle()
        deployment.check_links()
        for node in filter(plan.holds, there):
            deployment.admit(node)
            starting = self._proceed(starting, (node,), deadline)
        self._await(lambda: Started in seen, deadline, on_its_way=there, every=START_SECONDS)
        if why := self._one_by_one():
            self.watch.recorder.event(ComputedOneByOne(why))

    def _proceed(
        self, starting: Sequence[NodeSpec], more: Sequence[NodeSpec], deadline: float
    ) -> list[NodeSpec]:
        """Return the nodes that are not ready yet, once they are few enough for ``more``."""
        most = MOST_STARTING[self.deployment.setup.plan.launch]
        starting = [*self._missing(starting), *more]  # not all: that would check 1,000 nodes
        self.watch.look()
        if len(self._missing(starting)) >= most:
            self.deployment.settle()
            self._await(lambda: len(self._missing(starting)) < most, deadline, on_its_way=starting)
        return starting

    def _one_by_one(self) -> str:
        """Return why gradients are computed one by one, though several at once were asked for.

        The node that computes has said so before it has accepted the first worker.
        """
        path = self.deployment.setup.folder.one_by_one
        try:
            said = read_untrusted(path, node=ComputeRole.name, most=MOST_SAID_BYTES)
        except FileNotFoundError:
            return ""
        return escaped(said.decode(errors="replace"))

    def _missing(self, nodes: Sequence[NodeSpec]) -> list[NodeSpec]:
        """Return the nodes that are not ready yet, without those that were lost with their host."""
        waited_for = [node for node in nodes if role_of(node).reports]
        waited_for = [node for node in waited_for if node.name not in self.watch.lost]
        return [node for node in waited_for if not self._has_reported(node)]

    def _has_reported(self, node: NodeSpec) -> bool:
        if node.part == "server":
            return role_of(node).reports in self.watch.seen
        return node.name in self.watch.joined

    def _await(
        self,
        ready: Callable[[], bool],
        deadline: float,
        *,
        on_its_way: Sequence[NodeSpec],
        every: float = LOOK_SECONDS,
    ) -> None:
        self.watch.look()
        while not ready():
            if self.deployment.clock() > deadline:
                raise self._late(self._missing(on_its_way) or on_its_way)
            self.deployment.pause(every)  # the nodes report through files
            self.watch.look()

    def _late(self, nodes: Sequence[NodeSpec]) -> NodeError:
        folder, first = self.deployment.setup.folder, nodes[0].name
        others = f" and {len(nodes) - 1} more" if len(nodes) > 1 else ""
        log = quote_log(folder.log(first))
        return NodeError(
            f"{first}{others} not ready by the startup deadline. {first} is running{log}",
            hint=f"All logs: testbed logs {folder.name}",
        )
