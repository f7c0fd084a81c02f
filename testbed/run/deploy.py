"""Starts a run: agent, parameter server, evaluator, workers; each waits for the one before."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from testbed.errors import NodeError
from testbed.plan.nodes import role_of
from testbed.run.probe import Prober, record_probe, shaped_links
from testbed.run.setup import Setup
from testbed.run.watch import Watch, quote_log
from testbed.runtimes.agent.client import AgentClient
from testbed.runtimes.base import RuntimeDriver
from testbed.telemetry.event_kinds import Launched, LinksRead, Phase, Started
from testbed.values.topology import LaunchMode, NodeSpec

LOOK_SECONDS = 0.05
START_SECONDS = 0.01
"""Polling interval while waiting for the start, which recordings and faults are timed by."""

ENDING_SECONDS = 5.0
BASE_SECONDS = 60.0
"""Bring-up may take this long, plus, for every node:"""
NODE_SECONDS: Mapping[LaunchMode, float] = {"warm": 0.5, "cold": 4.0}

MOST_STARTING: Mapping[LaunchMode, int] = {"warm": 16, "cold": 4}
"""Maximum number of workers that start at the same time: more would only slow each other down."""

LAUNCHES_AHEAD = 2
"""Number of nodes requested while another one is launched, so that the agent can begin early."""

MOST_CONTAINED = 32
"""Maximum number of containers created in one batch."""

Pending = Callable[[], int | None]
"""Waits for a launch; returns its pid, None if it has ended since."""


@dataclass
class Deployment:
    """The bring-up of one run, whose agent is already up; the clock counts monotonic seconds."""

    setup: Setup
    driver: RuntimeDriver
    agent: AgentClient
    watch: Watch
    clock: Callable[[], float]
    absent: Collection[str] = ()  # workers that are absent at the beginning
    pause: Callable[[float], None] = time.sleep  # sleeps for seconds
    as_now: Callable[[NodeSpec], NodeSpec] = lambda node: node  # with its current link
    _containers: dict[str, int] = field(default_factory=dict)
    _launched: set[str] = field(default_factory=set)
    _asked: deque[tuple[NodeSpec, Pending]] = field(default_factory=deque)

    def bring_up(self) -> None:
        """Start every node and wait until the training has started.

        Raises:
            NodeError: a node failed, or was not ready by the deadline; names it.
            HostError: the host cannot do what a node needs; names it.
        """
        plan, seen = self.setup.plan, self.watch.seen
        if self.setup.scenario.runtime.capabilities.engine:
            self.watch.recorder.event(Phase(f"creating {len(plan.nodes)} containers"))
        self._contain(plan.nodes)
        deadline = self.clock() + BASE_SECONDS + NODE_SECONDS[plan.launch] * len(plan.nodes)
        there = [node for node in plan.nodes if node.name not in self.absent]
        workers = f"{sum(node.part == 'client' for node in there)} workers"
        self.watch.recorder.event(Phase(f"starting the parameter server and {workers}"))
        most = MOST_STARTING[plan.launch]
        started: list[NodeSpec] = []
        for node in there:
            needs = role_of(node).needs
            needed = [other for other in self._missing(started) if other.role in needs]
            if needed:
                self._settle()
                self._await(lambda: not self._missing(needed), deadline, on_its_way=needed)  # noqa: B023 - at once
            self._asked.append((node, self._begin(node)))
            started = [*self._missing(started), node]  # not all: that would check 1,000 nodes
            self._settle(but=LAUNCHES_AHEAD)
            self.watch.look()
            if len(self._missing(started)) >= most:
                self._settle()
                self._await(
                    lambda: len(self._missing(started)) < most,  # noqa: B023 - at once
                    deadline,
                    on_its_way=started,
                )
        self._settle()
        self._check_links()  # not once it trains: then a recording may change links
        self._await(lambda: Started in seen, deadline, on_its_way=there, every=START_SECONDS)

    def probe_links(self) -> None:
        """Measure every class's link, before there is other traffic on the switch."""
        links = shaped_links(self.setup.plan)
        if not links:
            return
        self.watch.recorder.event(Phase(f"measuring the links of {', '.join(links)}"))
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
        """Have the agent launch a node; return its pid, None if it has ended since.

        An engine's container ends when it is killed from outside, or soon after its node: a node
        that is restarted gets another container.
        """
        again = node.name in self._launched
        try:
            return self._begin(node)()
        except NodeError:
            if not again or node.name not in self._containers:
                raise
        self.driver.discard(self.setup.folder, [node.name])
        self._contain([node])
        return self._begin(node)()

    def _begin(self, node: NodeSpec) -> Pending:
        """Request a node from the agent."""
        self._launched.add(node.name)
        container = self._containers.get(node.name)
        launch = replace(self.setup.launch(node), node=self.as_now(node), container=container)
        return self.agent.begin_launch(launch)

    def _settle(self, *, but: int = 0) -> None:
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

    def _missing(self, nodes: Sequence[NodeSpec]) -> list[NodeSpec]:
        """Return the nodes that are not ready yet."""
        waited_for = [node for node in nodes if role_of(node).reports]
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
            if self.clock() > deadline:
                raise self._late(self._missing(on_its_way) or on_its_way)
            self.pause(every)  # the nodes report through files
            self.watch.look()

    def _late(self, nodes: Sequence[NodeSpec]) -> NodeError:
        folder, first = self.setup.folder, nodes[0].name
        others = f" and {len(nodes) - 1} more" if len(nodes) > 1 else ""
        log = quote_log(folder.log(first))
        return NodeError(
            f"{first}{others} not ready by the startup deadline. {first} is running{log}",
            hint=f"All logs: testbed logs {folder.name}",
        )

    def _check_links(self) -> None:
        """Compare every link, as the kernel has it now, with the plan."""
        links = self._read_links()
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

    def _read_links(self) -> Sequence[Mapping[str, Any]]:
        """Return all links; a node that is ending loses its link a moment before its end."""
        until = self.clock() + ENDING_SECONDS
        while True:
            try:
                return self.agent.links()
            except NodeError:
                if self.clock() > until:
                    raise
            self.pause(LOOK_SECONDS)
            self.watch.look()
