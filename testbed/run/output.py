"""Follows what the nodes of a workload print: others wait for it, faults and metrics follow it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from testbed.run.metric_values import MetricValues
from testbed.scenario.workload import Workload
from testbed.scenario.workload_metrics import Metric
from testbed.scenario.workload_names import Placed, placed
from testbed.telemetry.files import LineReader
from testbed.telemetry.folder import RunFolder


@dataclass
class Output:
    """The output of the nodes that something depends on."""

    workload: Workload
    folder: RunFolder
    values: MetricValues
    trigger: Callable[[str], object]  # called with every line if a fault waits for one
    _matched: set[tuple[str, str]] = field(default_factory=set)  # nodes, and patterns
    _logs: dict[Placed, LineReader] = field(default_factory=dict)
    _patterns: dict[str, set[str]] = field(default_factory=dict)  # waited for, by program
    _metrics: dict[str, Mapping[str, Metric]] = field(default_factory=dict)  # printed, by program
    _json: set[str] = field(default_factory=set)  # programs of which a metric is JSON

    def __post_init__(self) -> None:
        for name, program in self.workload.workload.items():
            metrics = program.metrics.items()
            self._metrics[name] = {key: one for key, one in metrics if one.prometheus is None}
            if any(one.json_key is not None for one in self._metrics[name].values()):
                self._json.add(name)
            for other, what in program.after.items():
                if what.prints is not None:
                    self._patterns.setdefault(other, set()).add(what.prints)
        moments = (at for one in self.workload.faults for at in (one.at, one.until))
        triggers = any(at is not None and at.log is not None for at in moments)
        self._logs = {
            one: LineReader(self.folder.log(one.name))
            for one in placed(self.workload)
            if triggers or one.program in self._patterns or self._metrics[one.program]
        }

    def look(self) -> None:
        """Process the lines that have been printed since the last look."""
        for own, log in self._logs.items():
            for line in log.read():
                self._take(own, line.decode(errors="replace"))

    def has_printed(self, node: str, pattern: str) -> bool:
        """Return whether a line of a node's output has matched a pattern that is waited for."""
        return (node, pattern) in self._matched

    def _take(self, own: Placed, line: str) -> None:
        for pattern in self._patterns.get(own.program, ()):
            if re.search(pattern, line):
                self._matched.add((own.name, pattern))
        self.trigger(line)
        content: Any = json_of(line) if own.program in self._json else None
        for name, metric in self._metrics[own.program].items():
            value = printed_value(metric, line, content)
            if value is not None:
                self.values.take(own.name, name, value)


def printed_value(metric: Metric, line: str, content: Any) -> float | None:
    """Return the value of a metric in a line, or its content as JSON; None if it has none."""
    if metric.regex is not None:
        found = re.search(metric.regex, line)
        try:
            return None if found is None else float(found[1] or "")
        except ValueError:
            return None
    if metric.json_key is None:
        return None
    value = _at(content, metric.json_key)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    try:
        return float(value) if number else None
    except OverflowError:
        return None


def json_of(line: str) -> Any:
    """Return the content of a line that is a JSON object; None for any other line."""
    if not line.lstrip().startswith("{"):
        return None
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _at(content: Any, key: str) -> Any:
    """Return what an object has at a key, in which dots lead into the objects inside it."""
    if not isinstance(content, dict):
        return None
    if key in content:
        return content[key]
    first, _, rest = key.partition(".")
    return _at(content.get(first), rest) if rest else None
