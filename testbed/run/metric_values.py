"""The values of a workload's metrics, wherever they come from: recorded, and followed.

``stop`` ends the run at one of them, and faults begin at one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from testbed.faults.timeline import Timeline
from testbed.scenario.workload import Workload
from testbed.telemetry.event_kinds import MetricUnread
from testbed.telemetry.record import Recorder

MOST_REASONS = 5


@dataclass
class MetricValues:
    """Takes every value that a node prints or serves.

    Attributes:
        reached: the first metric of `stop` that a node has reached, as text; empty before.
    """

    workload: Workload
    recorder: Recorder
    timeline: Timeline
    reached: str = ""
    _unread: dict[tuple[str, str], set[str]] = field(default_factory=dict)  # reasons recorded

    def __post_init__(self) -> None:
        self._metrics = self.workload.metrics
        self._targets = self.workload.stop.metrics if self.workload.stop else {}

    def take(self, node: str, name: str, value: float) -> None:
        """Record a value; infinities and NaN are none."""
        if not math.isfinite(value):
            return
        self.recorder.metric(node, name, value)
        self.timeline.evaluated({name: value}, now=self.recorder.elapsed_seconds or 0.0)
        target = self._targets.get(name)
        if target is None or self.reached:
            return
        if self._metrics[name].is_reached(value, target):
            self.reached = f"{name} of {node} has reached {target:g}: {value:g}"

    def miss(self, node: str, name: str, reason: str) -> None:
        """Record why a metric could not be read, once for each of the first reasons."""
        known = self._unread.setdefault((node, name), set())
        if reason not in known and len(known) < MOST_REASONS:
            known.add(reason)
            self.recorder.event(MetricUnread(node, name, reason))
