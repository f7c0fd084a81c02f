"""Measures of workloads: what all nodes, or one of them, have sent and taken.

Measures of a metric by its name, such as ``best_accuracy`` and ``time_to_f1(0.8)``, are those of a
training (``registry.py``): the values of a metric are like its evaluations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import nan
from typing import TYPE_CHECKING

from testbed.reports.registry import Definition

if TYPE_CHECKING:
    from testbed.reports.workload import WorkloadRun

SERIES = ("time_seconds", "sent_bytes")
"""Columns of a metric's values that a measure may be about."""


def _over_nodes(
    key: str, how: Callable[[Iterable[float]], float] = sum
) -> Callable[..., float | None]:
    def of(run: WorkloadRun, node: str | None) -> float | None:
        nodes = run.summary["nodes"]
        if node is not None and node not in nodes:
            return nan
        found = [one[key] for name, one in nodes.items() if node in (None, name)]
        known = [value for value in found if value is not None]
        return float(how(known)) if known else nan

    return of


def _of_nodes(title: str, unit: str, of: Callable[..., float | None]) -> Definition:
    return Definition(title, unit, of, ("node",))


WORKLOAD_MEASURES: Mapping[str, Definition] = {
    "time": Definition("time", "s", lambda run: run.summary["real_seconds"]),
    "sent": _of_nodes("bytes sent", "B", _over_nodes("up_bytes")),
    "received": _of_nodes("bytes received", "B", _over_nodes("down_bytes")),
    "retransmitted": _of_nodes("TCP data sent again", "B", _over_nodes("retransmitted_bytes")),
    "dropped": _of_nodes("dropped packets", "count", _over_nodes("dropped_packets")),
    "cpu": _of_nodes("CPU time", "s", _over_nodes("cpu_seconds")),
    "memory": _of_nodes("largest memory of a node", "B", _over_nodes("memory_bytes_max", max)),
}
"""By name; a name that a training's measure has too means the same of a workload."""

OF_LOSS = ("lowest_loss", "time_to_loss")
"""Measures of a training's loss that a workload's metric of that name has too."""
