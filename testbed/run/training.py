"""The course of a training: the parameter server says when it has started and ended."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar

from testbed.errors import NodeError
from testbed.rpc.tokens import CONTROLLER, token_of
from testbed.run.course import Connected, Course
from testbed.run.deploy import LOOK_SECONDS, Deployment
from testbed.run.faults import Faults
from testbed.run.setup import TrainingSetup
from testbed.run.traces import Traces
from testbed.run.training_start import TrainingStart
from testbed.run.training_watch import TrainingWatch
from testbed.run.watch import Restarter
from testbed.run.worker_status import WorkerStatusReporter
from testbed.runtimes.agent.settings import OnHangup
from testbed.scenario.compute import choose
from testbed.scenario.experiment import timeline_of
from testbed.scenario.own_code import own_files
from testbed.scenario.traces import followings, own_copy
from testbed.telemetry.entry import NAMES
from testbed.telemetry.event_kinds import State
from testbed.telemetry.ps_events import Done
from testbed.values.topology import NodeSpec

FINAL_SECONDS = 120.0
"""Added to the last evaluation; longer than the PS itself waits once training has ended."""


class Training(Course):
    """The course of one training."""

    active: ClassVar[State] = "training"
    on_hangup: ClassVar[OnHangup] = "finish"
    watch: TrainingWatch

    def __init__(self, setup: TrainingSetup, run: Connected) -> None:
        folder, scenario = setup.folder, setup.scenario
        self._setup, self._run = setup, run
        plan, token = setup.plan, token_of(setup.secret, CONTROLLER)
        status = WorkerStatusReporter(folder.ps_socket, token)
        self.watch = TrainingWatch(plan, folder, run.recorder, run.agent, run.clock, status)
        self.watch.own_files = own_files(scenario)
        self.timeline = timeline_of(scenario, folder.path)
        follows = followings(scenario, partial(own_copy, folder.path))
        absent = self.timeline.population.absent
        self._traces = Traces(plan, run.agent, run.recorder, follows, absent)

    def as_now(self, node: NodeSpec) -> NodeSpec:
        """Return a node with the link that its recordings have now."""
        return self._traces.as_now(node)

    def bring_up(self, deployment: Deployment) -> None:
        """Start every node, and wait until the training has started."""
        saves = self._setup.scenario.checkpoint is not None
        name, clock = self._setup.folder.name, self._run.clock
        self.watch.restarter = Restarter(name, deployment.launch, clock, saves)
        absent = self.timeline.named(self.timeline.population.absent)
        computes = choose(self._setup.scenario).why
        TrainingStart(deployment, self.watch, absent, computes).bring_up()

    def follow(self, faults: Faults) -> None:
        """Watch the training, apply its faults, and have its links follow their recordings."""

        def step() -> None:
            self._run.pause(self._traces.pause(faults.pause(LOOK_SECONDS)))
            if not self.watch.finished:
                self._traces.look()  # first: its timing is the finest
            self.watch.look()
            faults.look()

        self._until(lambda: self.watch.finished, step)
        self._await_done()

    def _await_done(self) -> None:
        """Await the last evaluation.

        Raises:
            NodeError: the parameter server does not report that it is done.
        """
        within = FINAL_SECONDS + self._setup.scenario.evaluate.timeout
        deadline = self._run.clock() + within

        def step() -> None:
            if self._run.clock() > deadline:
                raise NodeError(
                    f"training has ended, but {within:g} s later there is no `{NAMES[Done]}` "
                    "from the parameter server.",
                    hint=f"Check its log: testbed logs {self._setup.folder.name} ps",
                )
            self._run.pause(LOOK_SECONDS)  # the PS reports through files
            self.watch.look()

        self._until(lambda: Done in self.watch.seen, step)

    def _until(self, ended: Callable[[], bool], step: Callable[[], None]) -> None:
        self.watch.look()
        while not ended():
            step()
