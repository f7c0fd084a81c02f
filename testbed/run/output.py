"""Follows what the nodes of a workload print: others wait for it, faults and metrics follow it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from testbed.scenario.workload import Workload
from testbed.scenario.workload_names import Placed, placed
from testbed.telemetry.files import LineReader
from testbed.telemetry.folder import RunFolder
from testbed.telemetry.record import Recorder


@dataclass
class Output:
    """The output of the nodes that something depends on."""

    workload: Workload
    folder: RunFolder
    recorder: Recorder
    trigger: Callable[[str], object]  # called with every line if a fault waits for one
    reached: str = ""  # the first metric of `stop` that a node has reached, as text
    _matched: set[tuple[str, str]] = field(default_factory=set)  # nodes, and patterns
    _logs: dict[Placed, LineReader] = field(default_factory=dict)
    _patterns: dict[str, set[str]] = field(default_factory=dict)  # waited for, by program

    def __post_init__(self) -> None:
        for program in self.workload.workload.values():
            for other, what in program.after.items():
                if what.prints is not None:
                    self._patterns.setdefault(other, set()).add(what.prints)
        triggers = any(fault.at.log is not None for fault in self.workload.faults)
        self._logs = {
            one: LineReader(self.folder.log(one.name))
            for one in placed(self.workload)
            if triggers or one.program in self._patterns or self._metrics(one)
        }

    def look(self) -> None:
        """Process the lines that have been printed since the last look."""
        for own, log in self._logs.items():
            for line in log.read():
                self._take(own, line.decode(errors="replace"))

    def has_printed(self, node: str, pattern: str) -> bool:
        """Return whether a line of a node's output has matched a pattern that is waited for."""
        return (node, pattern) in self._matched

    def _metrics(self, own: Placed) -> bool:
        return bool(self.workload.workload[own.program].metrics)

    def _take(self, own: Placed, line: str) -> None:
        for pattern in self._patterns.get(own.program, ()):
            if re.search(pattern, line):
                self._matched.add((own.name, pattern))
        self.trigger(line)
        for name, metric in self.workload.workload[own.program].metrics.items():
            if (found := re.search(metric.regex, line)) is None:
                continue
            value = _number(found[1])
            if value is None:
                continue
            self.recorder.metric(own.name, name, value)
            targets = self.workload.stop.metrics if self.workload.stop else {}
            if name in targets and metric.is_reached(value, targets[name]) and not self.reached:
                self.reached = f"{name} of {own.name} has reached {targets[name]:g}: {value:g}"


def _number(text: str | None) -> float | None:
    """Return a finite number; None for text that is none."""
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None
