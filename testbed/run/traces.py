"""Lets the links of a run's workers follow their recordings, as the recorder's clock goes."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from testbed.agent.client import AgentClient
from testbed.errors import NodeError
from testbed.scenario.traces import Following
from testbed.telemetry.record import Recorder
from testbed.topology import Plan, Shape
from testbed.values.units import Duration, Rate

Due = tuple[float, int, float]
"""When, in emulated seconds; the number of what follows; the value that it has from then on."""


@dataclass
class Traces:
    """What follows what, and what is due.

    Attributes:
        absent: the workers that are not there; they are caught up with when they are.
    """

    plan: Plan
    agent: AgentClient
    recorder: Recorder
    followings: Sequence[Following]
    absent: Collection[int]
    _due: list[Due] = field(default_factory=list)
    _shapes: dict[tuple[int, str], Shape] = field(default_factory=dict)
    _behind: set[tuple[int, str]] = field(default_factory=set)  # links not as they should be

    def __post_init__(self) -> None:
        for number, one in enumerate(self.followings):
            link = self.plan.workers[one.worker].link
            assert link is not None, "every worker has one"
            self._shapes[one.worker, one.direction] = getattr(link, one.direction)
            self._due.append((0.0, number, one.trace.at(0.0, one.offset)))
        heapq.heapify(self._due)

    def pause(self, longest: float) -> float:
        """Real seconds until something is due, and not more than these."""
        soonest = self._due[0][0] if self._due else inf
        return min(longest, max(0.0, (soonest - self._now) / self.recorder.time_scale))

    def look(self) -> None:
        """Change what is due by now, each link once."""
        now = self._now
        while self._due and self._due[0][0] <= now:
            at, number, value = heapq.heappop(self._due)
            one = self.followings[number]
            key = one.worker, one.direction
            self._shapes[key] = self._changed(self._shapes[key], one.what, value)
            self._behind.add(key)
            if (following := one.trace.after(at, value, one.offset)) is not None:
                heapq.heappush(self._due, (following[0], number, following[1]))
        self._behind |= {key for key in self._shapes if key[0] in self.absent}
        changes: dict[int, dict[str, Any]] = defaultdict(dict)
        for worker, direction in sorted(self._behind):
            if worker not in self.absent:
                changes[worker][direction] = self._shapes[worker, direction]
                self._behind.discard((worker, direction))
        for worker, shapes in changes.items():
            self._reshape(self.plan.workers[worker].name, shapes)

    def _reshape(self, node: str, shapes: dict[str, Any]) -> None:
        try:
            self.agent.reshape([node], **shapes)
        except NodeError:
            if node in self.agent.running():  # else it has just ended, which is told elsewhere
                raise

    def _changed(self, shape: Shape, what: str, value: float) -> Shape:
        if what == "rate":
            return replace(shape, rate=Rate(value * self.plan.time_scale))
        return replace(shape, delay=Duration(value / self.plan.time_scale))

    @property
    def _now(self) -> float:
        elapsed = self.recorder.elapsed_seconds
        return -inf if elapsed is None else elapsed * self.recorder.time_scale
