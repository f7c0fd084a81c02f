"""Makes the links of a run's devices follow their recordings, by the recorder's clock."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf

from testbed.errors import NodeError
from testbed.network.counters import Carried
from testbed.runtimes.agent.client import AgentClient
from testbed.scenario.traces import Following
from testbed.telemetry.record import Recorder
from testbed.telemetry.rows import LinkRow
from testbed.values.topology import Direction, NodeSpec, Plan
from testbed.values.units import Duration, Rate

READ_SECONDS = 1.0
"""Interval at which the links' counters are read; real."""

ScheduledChange = tuple[float, int, float]
"""When, in emulated seconds; the index of the following; the new value."""


@dataclass
class Traces:
    """Which link follows which recording, and the scheduled changes."""

    plan: Plan
    agent: AgentClient
    recorder: Recorder
    followings: Sequence[Following]
    absent: Collection[int]  # the absent devices, which get the link of the moment when they join
    _due: list[ScheduledChange] = field(default_factory=list)
    _shapes: dict[tuple[int, str], Direction] = field(default_factory=dict)
    _read: float = 0.0  # real seconds since the training started, of the last reading
    _carried: Mapping[str, Carried] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for number, one in enumerate(self.followings):
            link = self._devices[one.worker].link
            assert link is not None, "every device has one"
            self._shapes.setdefault((one.worker, one.direction), getattr(link, one.direction))
            self._take(number, 0.0, one.trace.at(0.0, one.offset))

    @cached_property
    def _devices(self) -> Sequence[NodeSpec]:
        """The workers by index, or the nodes of a workload by number."""
        return self.plan.workers or self.plan.nodes

    @cached_property
    def _numbers(self) -> Mapping[str, int]:
        return {node.name: number for number, node in enumerate(self._devices)}

    def as_now(self, node: NodeSpec) -> NodeSpec:
        """Return a node with the link that its recordings have now, or at the beginning."""
        number = self._numbers.get(node.name, -1)
        if node.link is None:
            return node
        up = self._shapes.get((number, "up"), node.link.up)
        down = self._shapes.get((number, "down"), node.link.down)
        return replace(node, link=replace(node.link, up=up, down=down))

    def pause(self, longest: float) -> float:
        """Return the real seconds until the next change, at most ``longest``."""
        soonest = self._due[0][0] if self._due else inf
        return min(longest, max(0.0, (soonest - self._now) / self.recorder.time_scale))

    def look(self) -> None:
        """Apply all changes scheduled by now, each link once; regularly read the counters."""
        now = self._now
        changes: dict[int, dict[str, Direction]] = defaultdict(dict)
        planned: dict[int, float] = {}
        while self._due and self._due[0][0] <= now:
            at, number, value = heapq.heappop(self._due)
            self._take(number, at, value)
            one = self.followings[number]
            if one.worker not in self.absent:
                planned.setdefault(one.worker, at)
                changes[one.worker][one.direction] = self._shapes[one.worker, one.direction]
        for worker, shapes in changes.items():
            self._reshape(self._devices[worker].name, planned[worker], shapes)
        read_next = self._read + READ_SECONDS if self._carried else 0.0
        if self.followings and now / self.recorder.time_scale >= read_next:
            self._record()

    def _take(self, number: int, at: float, value: float) -> None:
        """Set a value from a moment on, and schedule the next change."""
        one = self.followings[number]
        key = one.worker, one.direction
        self._shapes[key] = self._changed(self._shapes[key], one.what, value)
        if (following := one.trace.after(at, value, one.offset)) is not None:
            heapq.heappush(self._due, (following[0], number, following[1]))

    def _reshape(self, node: str, at: float, shapes: Mapping[str, Direction]) -> None:
        planned = self.recorder.moment(at / self.recorder.time_scale)
        try:
            self.agent.reshape(
                [node], up=shapes.get("up"), down=shapes.get("down"), planned=planned
            )
        except NodeError:
            if node in self.agent.running():  # else it has just ended, which is reported elsewhere
                raise

    def _record(self) -> None:
        """Record the configured and actual rates of links that existed for the whole interval."""
        before, begun, scale = self._carried, self._read, self.recorder.time_scale
        self._carried, self._read = self.agent.carried(), self.recorder.elapsed_seconds or 0.0
        rows = []
        for one in self.followings:
            node, counter = self._devices[one.worker].name, f"{one.direction}_bytes"
            if one.what != "rate" or node not in before or node not in self._carried:
                continue
            passed = getattr(self._carried[node], counter) - getattr(before[node], counter)
            if passed < 0:  # its link was created again
                continue
            asked = one.trace.mean_between(begun * scale, self._read * scale, one.offset)
            delivered = 8 * passed / ((self._read - begun) * scale)
            row = LinkRow(self._read * scale, self._read, node, one.direction, asked, delivered)
            rows.append(row)
        self.recorder.readings(rows)

    def _changed(self, shape: Direction, what: str, value: float) -> Direction:
        if what == "rate":
            return shape.changed(rate=Rate(value * self.plan.time_scale))
        return shape.changed(delay=Duration(value / self.plan.time_scale))

    @property
    def _now(self) -> float:
        elapsed = self.recorder.elapsed_seconds
        return -inf if elapsed is None else elapsed * self.recorder.time_scale
