"""Replay of a workload's ended run: its metrics as scrapes would have read them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from math import ceil
from operator import itemgetter

from testbed.reports.metrics.replay import STEP_SECONDS, Moment
from testbed.reports.metrics.workload import WorkloadMetrics
from testbed.reports.workload import WorkloadRun
from testbed.telemetry.event_kinds import WorkloadBegun
from testbed.telemetry.rows import METRICS, NODES, MetricRow, NodeRow
from testbed.values.topology import Plan


class WorkloadReplay:
    """Replays the record of a workload; see ``Replay``."""

    def __init__(self, run: WorkloadRun, plan: Plan) -> None:
        sink = self._sink = WorkloadMetrics(plan.named(run.name), seconds=lambda: 0.0)
        nodes = run.nodes[list(NODES)].astype(object)
        readings = [NodeRow(*row) for row in nodes.where(nodes.notna(), None).to_numpy()]
        values = [MetricRow(*row) for row in run.metrics[list(METRICS)].to_numpy()]
        records: list[tuple[float, Callable[[], None]]] = [
            *((one.elapsed_seconds or 0.0, partial(sink.event, one)) for one in run.entries),
            *((one.time_seconds, partial(sink.readings, [one])) for one in readings),
            *((one.time_seconds, partial(sink.readings, [one])) for one in values),
        ]
        self._records = sorted(records, key=itemgetter(0))
        created = datetime.fromisoformat(run.state.created).timestamp()
        begun = [one.time for one in run.entries if isinstance(one.event, WorkloadBegun)]
        self.started = begun[0] if begun else created

    @property
    def seconds(self) -> float:
        """Seconds from the start to the last record."""
        return max([0.0, *(at for at, _ in self._records)])

    def moments(self) -> Iterator[Moment]:
        """Yield a snapshot for every step."""
        left = deque(self._records)
        for step in range(ceil(self.seconds / STEP_SECONDS) + 1):
            until = step * STEP_SECONDS
            while left and left[0][0] <= until:
                left.popleft()[1]()
            self._sink.time_passed(min(until, self.seconds))
            yield Moment(until, self._sink.families())
