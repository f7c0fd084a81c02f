"""Where the workers' time went, and when a training has converged, as the ADSP paper measures it.

H. Hu, D. Wang, C. Wu, "Distributed machine learning through heterogeneous edge systems", AAAI 2020.
A worker's time is that up to its last push: computation, think time, communication and blocked time
add up to it.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from testbed.algorithms.parts.implicit_momentum import implicit_momentum
from testbed.reports.measures import number

if TYPE_CHECKING:
    import pandas as pd

EVALUATIONS = 10
"""So many evaluations say that a training has converged."""

SETTLED_VARIANCE = 1e-5
SETTLED_RATIO = 1.05
"""A loss has settled once its variance over these is so small, at so much of the target at most."""


def workers_times(updates: pd.DataFrame) -> pd.DataFrame:
    """A row for every worker that has updates in the model, by index.

    Columns: ``computation_seconds`` (training, waits that set the speed of a class included),
    ``think_seconds``, ``communication_seconds`` (pushes and pulls), ``blocked_seconds`` (held by
    the parameter server), ``stream_wait_seconds`` (for samples, where the
    algorithm may train on streams), ``total_seconds``,
    ``waiting_ratio`` (1 - computation / total), ``steps`` and ``commits``.
    """
    columns = {
        "compute_seconds": "computation_seconds",
        "think_seconds": "think_seconds",
        "transfer_seconds": "communication_seconds",
        "blocked_seconds": "blocked_seconds",
        "stream_wait_seconds": "stream_wait_seconds",
    }
    columns = {name: other for name, other in columns.items() if name in updates}
    seconds = updates[[*columns]].astype("float64").groupby(updates["worker"]).sum()
    table = seconds.rename(columns=columns)
    table["total_seconds"] = table.sum(axis=1)
    table["waiting_ratio"] = 1 - table["computation_seconds"] / table["total_seconds"]
    own = updates.groupby("worker")
    table["steps"], table["commits"] = own["steps"].sum(), own.size()
    return table


def waiting(updates: pd.DataFrame) -> dict[str, Any]:
    """Means over the workers, totals, the heterogeneity of the workers, and every worker's own."""
    table = workers_times(updates)
    times = [name for name in table.columns if name.endswith("_seconds")]
    return {
        "waiting_ratio": number(table["waiting_ratio"].mean()),
        **{f"{name}_mean": number(table[name].mean()) for name in times},
        "steps": int(table["steps"].sum()),
        "commits": int(table["commits"].sum()),
        "heterogeneity": heterogeneity(table),
        "heterogeneity_with_communication": heterogeneity(table, communication=True),
        "by_worker": {f"w{index}": row for index, row in table.to_dict("index").items()},
    }


def heterogeneity(table: pd.DataFrame, *, communication: bool = False) -> float | None:
    """H: the mean speed of the workers over that of the slowest, in steps a second.

    With ``communication``, a step also takes its share of the push and pull it is committed with.
    """
    seconds = table["computation_seconds"]
    if communication:
        seconds = seconds + table["communication_seconds"]
    speeds = table["steps"] / seconds.where(seconds > 0)
    return number((speeds.mean() / speeds.min()) if len(speeds) else None)


def implicit_momentum_of(updates: pd.DataFrame, *, check_period: float | None) -> float | None:
    """The implicit momentum of commits as often as they were made, at the speeds that were had.

    None where there is no check period, which its unit of time is.
    """
    if check_period is None:
        return None
    table = workers_times(updates)
    rates = table["commits"] / table["total_seconds"] * check_period
    speeds = table["steps"] / table["computation_seconds"] * check_period
    return number(implicit_momentum(rates.tolist(), steps=speeds.tolist()))


def convergence_time(evaluations: pd.DataFrame, *, loss: float) -> float:
    """When the tenth evaluation during the training had a loss below ``loss``; infinite for never.

    They need not be ten in a row.
    """
    return _converged(evaluations, "time_seconds", loss)


def convergence_steps(evaluations: pd.DataFrame, *, loss: float) -> float:
    """The training steps of all workers up to then."""
    return _converged(evaluations, "steps", loss)


def _converged(evaluations: pd.DataFrame, column: str, loss: float) -> float:
    during = evaluations[~evaluations["final"]]
    below = during.loc[during["loss"] < loss, column]
    return float(below.iloc[EVALUATIONS - 1]) if len(below) >= EVALUATIONS else inf


def settling_time(evaluations: pd.DataFrame, *, loss: float) -> float:
    """When the loss of ten evaluations in a row had settled near ``loss``; infinite for never.

    Their variance is below 1e-5, and the last of them is at most 1.05 times ``loss``.
    """
    during = evaluations[~evaluations["final"]]
    variance = during["loss"].rolling(EVALUATIONS).var(ddof=0)
    settled = (variance < SETTLED_VARIANCE) & (during["loss"] <= SETTLED_RATIO * loss)
    times = during.loc[settled, "time_seconds"]
    return float(times.iloc[0]) if len(times) else inf


def time_to_loss(evaluations: pd.DataFrame, *, loss: float) -> float:
    """When an evaluation during the training first had a loss below ``loss``."""
    during = evaluations[~evaluations["final"]]
    times = during.loc[during["loss"] < loss, "time_seconds"]
    return float(times.iloc[0]) if len(times) else inf
