"""Workers' time by activity, and the time to convergence, as measured in the ADSP paper.

H. Hu, D. Wang, C. Wu, "Distributed machine learning through heterogeneous edge systems", AAAI 2020.
A worker's time ends at its last push. It is the sum of computation, think time, communication and
blocked time.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING, Any

from testbed.reports.measures import number

if TYPE_CHECKING:
    import pandas as pd

EVALUATIONS = 10
"""Number of evaluations that decide on convergence."""

SETTLED_VARIANCE = 1e-5
SETTLED_RATIO = 1.05
"""A loss has settled below this variance over EVALUATIONS, and this multiple of the target."""


def workers_times(updates: pd.DataFrame) -> pd.DataFrame:
    """Return a row for every worker that has updates in the model, by index.

    Columns: ``computation_seconds`` (training, including waits that set the speed of a class),
    ``think_seconds``, ``communication_seconds`` (pushes and pulls), ``blocked_seconds`` (held by
    the parameter server), ``stream_wait_seconds`` (for samples, if the
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
    """Return means over the workers, totals, the workers' heterogeneity, and values per worker."""
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
    """Return H: mean over minimum speed of the workers, in steps per second.

    With ``communication``, a step includes its share of the push and pull of its commit.
    """
    seconds = table["computation_seconds"]
    if communication:
        seconds = seconds + table["communication_seconds"]
    speeds = table["steps"] / seconds.where(seconds > 0)
    return number((speeds.mean() / speeds.min()) if len(speeds) else None)


def implicit_momentum_of(updates: pd.DataFrame, *, check_period: float | None) -> float | None:
    """Return the implicit momentum for the measured commit rates and speeds.

    None without a check period, which is its unit of time.
    """
    if check_period is None:
        return None
    table = workers_times(updates)
    rates = table["commits"] / table["total_seconds"] * check_period
    speeds = table["steps"] / table["computation_seconds"] * check_period
    return number(implicit_momentum(rates.tolist(), steps=speeds.tolist()))


def convergence_time(evaluations: pd.DataFrame, *, loss: float) -> float:
    """Return when the tenth evaluation had a loss below ``loss``; infinity for never.

    They need not be consecutive.
    """
    return _converged(evaluations, "time_seconds", loss)


def convergence_steps(evaluations: pd.DataFrame, *, loss: float) -> float:
    """Return the training steps of all workers until ``convergence_time``."""
    return _converged(evaluations, "steps", loss)


def _converged(evaluations: pd.DataFrame, column: str, loss: float) -> float:
    during = evaluations[~evaluations["final"]]
    below = during.loc[during["loss"] < loss, column]
    return float(below.iloc[EVALUATIONS - 1]) if len(below) >= EVALUATIONS else inf


def settling_time(evaluations: pd.DataFrame, *, loss: float) -> float:
    """Return when the loss of ten consecutive evaluations had settled near ``loss``, or infinity.

    Their variance is below 1e-5, and the last of them is at most 1.05 times ``loss``.
    """
    during = evaluations[~evaluations["final"]]
    variance = during["loss"].rolling(EVALUATIONS).var(ddof=0)
    settled = (variance < SETTLED_VARIANCE) & (during["loss"] <= SETTLED_RATIO * loss)
    times = during.loc[settled, "time_seconds"]
    return float(times.iloc[0]) if len(times) else inf


def time_to_loss(evaluations: pd.DataFrame, *, loss: float) -> float:
    """Return when an evaluation during the training first had a loss below ``loss``."""
    during = evaluations[~evaluations["final"]]
    times = during.loc[during["loss"] < loss, "time_seconds"]
    return float(times.iloc[0]) if len(times) else inf


def implicit_momentum(commit_rates: Sequence[float], *, steps: Sequence[float]) -> float:
    """Return the implicit momentum of commits that are applied on arrival (theorem 1): 1 - p, where

        p = 1 / (1 + (1 - 1/m) Σ_i Γ / (ΔC_i v_i)),

    so that E[W_{t+1} - W_t] = (1 - p) E[W_t - W_{t-1}] - p η E[U], without explicit momentum
    (H. Hu, D. Wang, C. Wu, AAAI 2020, equation 2). Time is measured in check periods: Γ is 1. In
    seconds, the result would depend on the unit.

    Args:
        commit_rates: ΔC_i, commits of each worker per check period; above zero.
        steps: v_i, mini-batches of each worker per check period; above zero.

    Raises:
        ValueError: the lengths differ, or there are no workers.
    """
    if not commit_rates:
        raise ValueError("no workers, expected at least one")
    share = 1 - 1 / len(commit_rates)
    total = sum(1 / (rate * v) for rate, v in zip(commit_rates, steps, strict=True))
    return 1 - 1 / (1 + share * total)
