"""What a run does between the start of its agent and the removal of its nodes: the interface.

A training (``training.py``) and a workload (``workload.py``) are courses. Everything else of a run
is the same for both: agent, containers, links, faults, logs, counters, limits, tear-down, record.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from testbed.faults.timeline import Timeline
from testbed.run.watch import Watch
from testbed.runtimes.agent.client import AgentClient
from testbed.runtimes.agent.settings import OnHangup
from testbed.telemetry.event_kinds import State
from testbed.telemetry.record import Recorder
from testbed.values.topology import NodeSpec

if TYPE_CHECKING:
    from testbed.run.deploy import Deployment
    from testbed.run.faults import Faults


@dataclass(frozen=True)
class Connected:
    """What a course works with."""

    agent: AgentClient
    recorder: Recorder
    clock: Callable[[], float]  # monotonic seconds
    pause: Callable[[float], None]  # sleeps for seconds, unless the user interrupts


class Course(ABC):
    """The course of one run.

    Attributes:
        active: the state of the run once its nodes have been started.
        on_hangup: what becomes of a run in the background whose controller dies.
        watch: watches the nodes.
        timeline: which fault has which targets when.
    """

    active: ClassVar[State]
    on_hangup: ClassVar[OnHangup]
    watch: Watch
    timeline: Timeline

    def as_now(self, node: NodeSpec) -> NodeSpec:
        """Return a node that is about to start, with its current link."""
        return node

    @abstractmethod
    def bring_up(self, deployment: Deployment) -> None:
        """Start the nodes.

        Raises:
            NodeError: a node failed, or was not ready by the deadline; names it.
            HostError: the host cannot do what a node needs; names it.
        """

    @abstractmethod
    def follow(self, faults: Faults) -> None:
        """Watch the run, and apply its faults, until all is done; raises what ``look`` does."""
