"""Scalars for experiment trackers: named numbers, each at a step and a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import numpy as np

from testbed.reports.charts import thin

if TYPE_CHECKING:
    from testbed.reports.frames import Run

MOST = 10_000
"""Maximum number of values per name; thinning keeps the extremes, as in a report's curves."""

EVALUATED = {"top1": "accuracy/top1", "top5": "accuracy/top5", "loss": "loss"}
UPDATED = {"staleness": "staleness", "step_scale": "step_scale"}
READ = {
    "wire_rx_bytes": "traffic/wire_in_bytes",
    "wire_tx_bytes": "traffic/wire_out_bytes",
    "tcp_received_bytes": "traffic/tcp_in_bytes",
    "host_busy_ratio": "host/busy_ratio",
}


@dataclass(frozen=True)
class Scalar:
    """A number: its name, step (updates; for traffic emulated seconds) and seconds since 1970."""

    name: str
    step: int
    time: float
    value: float


def scalars(run: Run) -> Iterator[Scalar]:
    """Yield accuracy and loss by version, staleness by class and update, traffic by second."""
    start = _start(run)
    for _, row in run.evaluations.iterrows():
        ending = "_all_images" if row["final"] else ""
        for column, name in EVALUATED.items():
            if np.isfinite(row[column]):
                moment = start + row["wall_seconds"]
                yield Scalar(f"{name}{ending}", int(row["version"]), moment, float(row[column]))
    for device_class in run.updates["device_class"].cat.categories:
        updates = run.updates[run.updates["device_class"] == device_class]
        for column, name in UPDATED.items():
            for index in thin(updates[column].to_numpy(np.float64), MOST):
                row = updates.iloc[int(index)]
                moment = start + float(row["wall_seconds"])
                value = float(row[column])
                yield Scalar(f"{name}/{device_class}", int(row["version_applied"]), moment, value)
    for column, name in READ.items():
        rows = run.traffic[run.traffic["time_seconds"].notna() & run.traffic[column].notna()]
        for _, row in rows.iterrows():
            moment = start + float(row["wall_seconds"])
            yield Scalar(name, int(row["time_seconds"]), moment, float(row[column]))


def _start(run: Run) -> float:
    """Return when the training started, seconds since 1970; the run's creation if it never did."""
    return datetime.fromisoformat(run.state.started or run.state.created).timestamp()
