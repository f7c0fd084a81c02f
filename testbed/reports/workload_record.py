"""The record of a workload's run as pandas tables."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from testbed.reports.record import RecordedRun, read_csv, read_csv_parts
from testbed.telemetry.rows import METRICS, NODES, PAIRS_OF_NODES

if TYPE_CHECKING:
    import pandas as pd

    from testbed.scenario.workload import Workload


class WorkloadRecord(RecordedRun):
    """What was recorded of a workload."""

    of_workload = True

    @cached_property
    def scenario(self) -> Workload:
        """The resolved scenario."""
        from testbed.scenario.load_workload import load_workload
        from testbed.scenario.run_file import of_run

        with of_run(self.folder.scenario):
            return load_workload(self.folder.scenario)

    @cached_property
    def nodes(self) -> pd.DataFrame:
        """One row per node and reading, about one per second."""
        return read_csv(self.folder.nodes, NODES)

    @cached_property
    def pairs(self) -> pd.DataFrame:
        """One row per pair of nodes and reading that has changed, with totals of TCP."""
        return read_csv(self.folder.pairs, PAIRS_OF_NODES)

    def last_pairs(self, *, every_seconds: float = inf) -> Iterator[pd.DataFrame]:
        """Yield the last row of each pair in every interval of ``pairs``, which may exceed memory.

        Values that were not measured are those of an earlier row. The tables are in order; an
        interval, or all of the run, may be divided among several.
        """
        for part in read_csv_parts(self.folder.pairs, PAIRS_OF_NODES):
            interval = np.ceil(part["time_seconds"] / every_seconds).rename("interval")
            by_pair = part.groupby([interval, "node", "peer"], sort=False)
            yield by_pair.last().reset_index(["node", "peer"]).sort_values("time_seconds")

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """One row per value of a metric that a program has printed or served, in order."""
        return read_csv(self.folder.metrics, METRICS)

    def series(self, metric: str, *, column: str = "") -> pd.DataFrame:
        """Return the values of a metric in order of time, like the evaluations of a training.

        Args:
            metric: its name.
            column: what to call the values; by default like the metric.

        Returns:
            A row per value of any node, with ``time_seconds``, ``sent_bytes`` of all nodes until
            then (between two readings, interpolated), and ``final``, which is False.
        """
        import pandas as pd

        rows = self.metrics[self.metrics["metric"] == metric]
        times = rows["time_seconds"].to_numpy()
        total = self.nodes.groupby("time_seconds")["up_bytes"].sum()
        known = [0.0, *total.index], [0.0, *total.to_numpy(np.float64)]
        return pd.DataFrame(
            {
                "time_seconds": times,
                "sent_bytes": np.interp(times, *known),
                column or metric: rows["value"].to_numpy(),
                "final": np.zeros(len(rows), dtype=bool),
            }
        )
