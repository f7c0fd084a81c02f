"""Export to TensorBoard: one folder per run, with its scalars, scenario and summary.

A scalar is a named number at a step and a time, as experiment trackers have them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from testbed.models.metrics import group_of
from testbed.reports.charts import thin
from testbed.reports.exports import folder_a_run, lacks
from testbed.reports.page import numbers_table
from testbed.reports.record import metric_columns
from testbed.reports.table import markdown
from testbed.reports.workload import TOTALS, WorkloadRun

if TYPE_CHECKING:
    import pandas as pd

    from testbed.reports.any_run import AnyRun
    from testbed.reports.frames import Run


def write_tensorboard(runs: Sequence[AnyRun], out: Path) -> None:
    """Write a log folder: ``tensorboard --logdir OUT`` shows the runs overlaid.

    Raises:
        HostError: TensorBoard's library is not installed.
        TestbedError: a file of a run is damaged; then nothing is written.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise lacks("tensorboard", "tensorboard") from None
    with folder_a_run(out, runs) as fresh:
        for run in runs:
            with SummaryWriter(log_dir=str(fresh / run.name)) as writer:
                for one in scalars_of(run):
                    writer.add_scalar(one.name, one.value, one.step, walltime=one.time)
                yaml = run.folder.scenario.read_text(encoding="utf-8")
                writer.add_text("scenario", "".join(f"    {line}\n" for line in yaml.splitlines()))
                writer.add_text("summary", markdown(("", run.name), numbers_table([run]).rows))


MOST = 10_000
"""Maximum number of values per name; thinning keeps the extremes, as in a report's curves."""

UPDATED = {"staleness": "staleness", "step_scale": "step_scale"}
READ = {
    "wire_rx_bytes": "traffic/wire_in_bytes",
    "wire_tx_bytes": "traffic/wire_out_bytes",
    "tcp_received_bytes": "traffic/tcp_in_bytes",
    "host_busy_ratio": "host/busy_ratio",
}


@dataclass(frozen=True)
class Scalar:
    """A number: its name, step (updates; for traffic emulated seconds) and seconds since 1970.

    All steps of a workload are seconds.
    """

    name: str
    step: int
    time: float
    value: float


def scalars_of(run: AnyRun) -> Iterator[Scalar]:
    """Yield the curves of a training, or those of a workload by node and second."""
    return workload_scalars(run) if isinstance(run, WorkloadRun) else scalars(run)


def workload_scalars(run: WorkloadRun) -> Iterator[Scalar]:
    """Yield metrics and totals of every node."""
    start = _start(run)
    for key, rows in run.metrics.groupby(["metric", "node"], sort=False):
        yield from _thinned("/".join(map(str, key)), rows, "value", start)
    for node, rows in run.nodes.groupby("node", sort=False):
        for column in (*TOTALS, "cpu_seconds", "memory_bytes"):
            measured = rows[rows[column].notna()]
            yield from _thinned(f"nodes/{column}/{node!s}", measured, column, start)


def _thinned(
    name: str,
    rows: pd.DataFrame,
    column: str,
    start: float,
    *,
    step: str = "time_seconds",
    time: str = "time_seconds",
) -> Iterator[Scalar]:
    """Yield values of a column; ``step`` and ``time`` are the columns of steps and real seconds."""
    for index in thin(rows[column].to_numpy(np.float64), MOST):
        row = rows.iloc[int(index)]
        yield Scalar(name, int(row[step]), start + float(row[time]), float(row[column]))


def scalars(run: Run) -> Iterator[Scalar]:
    """Yield metrics and loss by version, staleness by class and update, traffic by second."""
    start = _start(run)
    metrics = metric_columns(run.evaluations)
    evaluated = {name: f"{group_of(name)}/{name}" for name in metrics} | {"loss": "loss"}
    for _, row in run.evaluations.iterrows():
        ending = "_all_images" if row["final"] else ""
        for column, name in evaluated.items():
            if np.isfinite(row[column]):
                moment = start + row["wall_seconds"]
                yield Scalar(f"{name}{ending}", int(row["version"]), moment, float(row[column]))
    for device_class in run.updates["device_class"].cat.categories:
        updates = run.updates[run.updates["device_class"] == device_class]
        for column, name in UPDATED.items():
            of_class = f"{name}/{device_class}"
            steps = {"step": "version_applied", "time": "wall_seconds"}
            yield from _thinned(of_class, updates, column, start, **steps)
    for column, name in READ.items():
        rows = run.traffic[run.traffic["time_seconds"].notna() & run.traffic[column].notna()]
        for _, row in rows.iterrows():
            moment = start + float(row["wall_seconds"])
            yield Scalar(name, int(row["time_seconds"]), moment, float(row[column]))


def _start(run: AnyRun) -> float:
    """Return when the training started, seconds since 1970; the run's creation if it never did."""
    return datetime.fromisoformat(run.state.started or run.state.created).timestamp()
