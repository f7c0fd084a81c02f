"""Brings a run up: agent, parameter server, evaluator, workers, each awaited before the next."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from testbed.agent.client import AgentClient
from testbed.errors import NodeError
from testbed.orchestrator.probe import Prober, record_probe, shaped_links
from testbed.orchestrator.setup import Setup
from testbed.orchestrator.watch import Watch, quote_log
from testbed.runtimes import Docker
from testbed.runtimes.base import RuntimeDriver
from testbed.topology import Launch, NodeSpec

LOOK_SECONDS = 0.05
ENDING_SECONDS = 5.0
BASE_SECONDS = 60.0
"""Bring-up may take this long, and so much longer for every node:"""
NODE_SECONDS: Mapping[Launch, float] = {"warm": 0.5, "cold": 4.0}

MOST_STARTING: Mapping[Launch, int] = {"warm": 16, "cold": 4}
"""So many workers may be on their way at once: more would only get in each other's way."""


@dataclass
class Deployment:
    """The bring-up of one run.

    Attributes:
        setup: what is brought up.
        driver: the runtime.
        agent: the run's agent, which takes orders already.
        watch: sees the nodes' own reports.
        clock: monotonic seconds.
    """

    setup: Setup
    driver: RuntimeDriver
    agent: AgentClient
    watch: Watch
    clock: Callable[[], float]
    _containers: Mapping[str, int] = field(default_factory=dict)

    def bring_up(self) -> None:
        """Start every node and wait until the training has started.

        Raises:
            NodeError: a node failed, or was not ready by the deadline; names it.
            HostError: the host cannot do what a node needs; names it.
        """
        plan, seen = self.setup.plan, self.watch.seen
        self._contain()
        deadline = self.clock() + BASE_SECONDS + NODE_SECONDS[plan.launch] * len(plan.nodes)
        workers = f"{len(plan.workers)} workers"
        self.watch.observer.phase(f"starting the parameter server and {workers}")
        self._start(plan.ps)
        self._await(lambda: "listening" in seen, deadline, on_its_way=(plan.ps,))
        most = MOST_STARTING[plan.launch]
        started: list[NodeSpec] = []
        for node in plan.nodes[1:]:
            self._start(node)
            if node.role == "worker":
                started.append(node)
            self._await(lambda: len(self._missing(started)) < most, deadline, on_its_way=started)
        self._await(lambda: "started" in seen, deadline, on_its_way=started)
        self._check_links()

    def probe_links(self) -> None:
        """Measure every class's link, before anything else uses the switch."""
        links = shaped_links(self.setup.plan)
        if not links:
            return
        self.watch.observer.phase(f"measuring the links of {', '.join(links)}")
        for found in self._prober().probe(links):
            record_probe(self.watch.recorder, found)

    def _prober(self) -> Prober:
        return Prober(self.setup.plan, self.setup.folder, self.driver, self.agent)

    def _contain(self) -> None:
        """Have the containers of all nodes made, where the agent does not do it at a launch."""
        plan = self.setup.plan
        if isinstance(self.setup.scenario.runtime, Docker):
            self.watch.observer.phase(f"creating {len(plan.nodes)} containers")
        cells = [self.setup.cell(node) for node in plan.nodes]
        self._containers = self.driver.contain(plan, self.setup.folder, cells)

    def _start(self, node: NodeSpec) -> None:
        launch = replace(self.setup.launch(node), container=self._containers.get(node.name))
        pid = self.agent.launch(launch)
        self.watch.recorder.event("launched", node=node.name, pid=pid)

    def _missing(self, nodes: Sequence[NodeSpec]) -> list[NodeSpec]:
        return [node for node in nodes if node.name not in self.watch.joined]

    def _await(
        self, ready: Callable[[], bool], deadline: float, *, on_its_way: Sequence[NodeSpec]
    ) -> None:
        self.watch.look()
        while not ready():
            if self.clock() > deadline:
                raise self._late(self._missing(on_its_way) or on_its_way)
            time.sleep(LOOK_SECONDS)  # the nodes report through files
            self.watch.look()

    def _late(self, nodes: Sequence[NodeSpec]) -> NodeError:
        folder, first = self.setup.folder, nodes[0].name
        others = f" and {len(nodes) - 1} more" if len(nodes) > 1 else ""
        log = quote_log(folder.log(first))
        return NodeError(
            f"{first}{others} not ready by the deadline of the bring-up. {first} is running{log}",
            hint=f"All logs: testbed logs {folder.name}",
        )

    def _check_links(self) -> None:
        """Compare every link with the plan, as the kernel has it now."""
        links = self._read_links()
        left_out = (text for link in links for text in link["left_out"])
        self.watch.recorder.links(
            checked=len(links),
            differences=[
                f"{link['node']}: {text}" for link in links for text in link["differences"]
            ],
            unseeded=sum(bool(link["unseeded"]) for link in links),
            left_out=list(dict.fromkeys(left_out)),  # the same for a whole class
        )

    def _read_links(self) -> list[Mapping[str, Any]]:
        """All links; a node that is ending has lost its link a moment before it has ended."""
        until = self.clock() + ENDING_SECONDS
        while True:
            try:
                return self.agent.links()
            except NodeError:
                if self.clock() > until:
                    raise
            time.sleep(LOOK_SECONDS)
            self.watch.look()
