"""Starts the nodes of a run: their containers, their launches by the agent, and their links."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from testbed.errors import NodeError
from testbed.host.admission import ADMISSION
from testbed.run.probe import Prober, record_probe, shaped_links
from testbed.run.setup import Setup
from testbed.run.watch import Watch
from testbed.runtimes.agent.client import AgentClient, AgentLateError
from testbed.runtimes.agent.launch import LaunchSpec
from testbed.runtimes.base import RuntimeDriver
from testbed.telemetry.event_kinds import Launched, LinksRead, Phase
from testbed.values.topology import NodeSpec

LOOK_SECONDS = 0.05

MOST_CONTAINED = 32
"""Maximum number of containers created in one batch."""

Pending = Callable[[], int | None]
"""Waits for a launch; returns its pid, None if it has ended since."""


@dataclass
class Deployment:
    """The nodes of one run, whose agent is already up; the clock counts monotonic seconds."""

    setup: Setup
    driver: RuntimeDriver
    agent: AgentClient
    watch: Watch
    clock: Callable[[], float]
    pause: Callable[[float], None] = time.sleep  # sleeps for seconds
    as_now: Callable[[NodeSpec], NodeSpec] = lambda node: node  # with its current link
    _containers: dict[str, int] = field(default_factory=dict, init=False)
    _launched: Counter[str] = field(default_factory=Counter, init=False)
    _asked: deque[tuple[NodeSpec, Pending]] = field(default_factory=deque, init=False)

    def create_containers(self) -> None:
        """Have the containers of all nodes created, where the agent does not do that."""
        nodes = self.setup.plan.nodes
        if self.setup.engine:
            self.watch.recorder.event(Phase(f"creating {len(nodes)} containers"))
        self._contain(nodes)

    def request(self, node: NodeSpec) -> None:
        """Have the agent launch a node as planned, without waiting for that."""
        self._asked.append((node, self._begin(self._next(self.setup.launch(node)))))

    def admit(self, node: NodeSpec) -> None:
        """Let a held node call others.

        Raises:
            AgentLateError: the agent does not answer in time, nor would it for the next node.
        """
        try:
            self.agent.signal(node.name, ADMISSION)
        except AgentLateError:
            raise
        except NodeError:
            return  # it has ended, which the watch reports

    def probe_links(self) -> None:
        """Measure every class's link, before there is other traffic on the switch."""
        links = shaped_links(self.setup.plan)
        if not links:
            return
        self.watch.recorder.event(
            Phase(f"measuring the links of {', '.join(one.name for one in links)}")
        )
        prober = Prober(self.setup.plan, self.setup.folder, self.driver, self.agent)
        for found in prober.probe(links):
            record_probe(self.watch.recorder, found)

    def _contain(self, nodes: Sequence[NodeSpec]) -> None:
        """Have the containers of nodes created, where the agent does not create them itself."""
        specs = [self.setup.container(node) for node in nodes]
        for begin in range(0, len(specs), MOST_CONTAINED):
            some = specs[begin : begin + MOST_CONTAINED]
            self._containers |= self.driver.contain(self.setup.plan, self.setup.folder, some)
            self.pause(0.0)  # creating them takes seconds, and signals are deferred

    def launch(self, node: NodeSpec) -> int | None:
        """Have the agent launch a node that need not be admitted; return its pid, None if it ended.

        An engine's container ends when it is killed from outside, or soon after its node: a node
        that is restarted gets another container.
        """
        again = node.name in self._launched
        launch = self._next(replace(self.setup.launch(node), held=False))
        try:
            return self._begin(launch)()
        except NodeError:
            if not again or node.name not in self._containers:
                raise
        self.driver.discard(self.setup.folder, [node.name])
        self._contain([node])
        return self._begin(launch)()

    def _next(self, launch: LaunchSpec) -> LaunchSpec:
        """Count a launch of its node; one after the first tells the role its number."""
        arguments = dict(launch.arguments)
        if arguments and (earlier := self._launched[launch.node.name]):
            arguments["process"] = str(earlier)
        self._launched[launch.node.name] += 1
        return replace(launch, arguments=arguments)

    def _begin(self, launch: LaunchSpec) -> Pending:
        """Request a node from the agent, as it is now."""
        node, container = self.as_now(launch.node), self._containers.get(launch.node.name)
        return self.agent.begin_launch(replace(launch, node=node, container=container))

    def settle(self, *, but: int = 0) -> None:
        """Wait for the requested nodes, except for ``but`` of them, and record their launches."""
        while len(self._asked) > but:
            node, launched = self._asked.popleft()
            self.watch.recorder.event(Launched(node.name, launched()))

    def start(self, node: NodeSpec) -> None:
        """Launch a node, and record the launch.

        Raises:
            NodeError, HostError: it could not be started; names it.
        """
        self.watch.recorder.event(Launched(node.name, self.launch(node)))

    def check_links(self) -> None:
        """Compare every link, as the kernel had it once it was created, with the plan.

        To read 1,000 links now would take half a minute, as their workers begin to train.
        """
        links = self.agent.links(as_created=True)
        left_out = (text for link in links for text in link["left_out"])
        found = LinksRead(
            checked=len(links),
            differences=tuple(
                f"{link['node']}: {text}" for link in links for text in link["differences"]
            ),
            left_out=tuple(dict.fromkeys(left_out)),  # the same for a whole class
            unseeded=sum(bool(link["unseeded"]) for link in links),
        )
        self.watch.recorder.event(found)
