"""Workers' time by activity, what of it the host caused, and the time to convergence.

H. Hu, D. Wang, C. Wu, "Distributed machine learning through heterogeneous edge systems", AAAI 2020.
Times and convergence are measured as in this paper: a worker's time ends at its last push, and is
the sum of computation, think time, communication and blocked time. Of the cycle from push to push,
step, think, links and the algorithm's own waiting come from the scenario, the rest from the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, inf
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from testbed.reports.measurements import Pace
from testbed.reports.measures import HEADER_BYTES, number
from testbed.scenario.devices import devices, differs
from testbed.values.topology import segment_bytes

if TYPE_CHECKING:
    import pandas as pd

    from testbed.reports.record import RunRecord
    from testbed.scenario.direction import Link
    from testbed.scenario.schema import Scenario
    from testbed.values.topology import Direction

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


def implicit_momentum_of(run: RunRecord) -> float | None:
    """Return the implicit momentum for the measured commit rates and speeds.

    None for an algorithm without a check period, which is its unit of time.
    """
    check_period = getattr(run.scenario.algorithm, "check_period", None)
    if check_period is None:
        return None
    table = workers_times(run.updates)
    rates = table["commits"] / table["total_seconds"] * check_period
    speeds = table["steps"] / table["computation_seconds"] * check_period
    return number(implicit_momentum(rates.tolist(), steps=speeds.tolist()))


def settling_time(evaluations: pd.DataFrame, *, loss: float) -> float:
    """Return when the loss of ten consecutive evaluations had settled near ``loss``, or infinity.

    Their variance is below 1e-5, and the last of them is at most 1.05 times ``loss``.
    """
    variance = evaluations["loss"].rolling(EVALUATIONS).var(ddof=0)
    settled = (variance < SETTLED_VARIANCE) & (evaluations["loss"] <= SETTLED_RATIO * loss)
    times = evaluations.loc[settled, "time_seconds"]
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


MESSAGE_BYTES = 200
"""gRPC's overhead per message, in addition to the payload."""

FIRST_WINDOW_BYTES = 14480
"""TCP's initial window of ten segments; it doubles in every round trip."""

Seconds = NDArray[np.float64]


@dataclass(frozen=True)
class HostShare:
    """The time that the host added between two pushes of a worker.

    Attributes:
        unexplained_ratio: the share that is neither the step by its class's speed, nor the think
            time as drawn, nor the transfer by the links, nor waiting for the algorithm; None if no
            worker thinks, or the clock is virtual.
        overslept_ratio: excess of think times over the drawn ones, as a share of these.
    """

    unexplained_ratio: float | None = None
    overslept_ratio: float | None = None


def host_share(
    updates: pd.DataFrame, scenario: Scenario, *, going: pd.DataFrame | None = None
) -> HostShare:
    """Return the host's share over all updates except each worker's first (one update, one push).

    ``going``, if given, restricts this to the updates that it contains.
    """
    times = updates.groupby("worker")["time_seconds"]
    counted = times.cumcount() > 0
    if going is not None:
        counted &= updates.index.isin(going.index)
    later = updates[counted]
    total = float(times.diff()[counted].sum())
    drawn = float((later["think_seconds"] - later["overslept_seconds"]).sum())
    if not total or not drawn or scenario.simulated:
        return HostShare()
    steps = float((later["compute_seconds"] - later["late_seconds"]).sum())
    explained = steps + drawn + float(later["blocked_seconds"].sum())
    explained += float(_transfers(later, scenario).sum())
    overslept = float(later["overslept_seconds"].sum())
    return HostShare(max(0.0, 1 - explained / total), overslept / drawn)


def slept(updates: pd.DataFrame, time_scale: float) -> Pace | None:
    """Return think times as drawn and as slept, in real seconds; None if no worker thinks."""
    thinking = updates[updates["think_seconds"] > 0]
    if thinking.empty:
        return None
    taken = float(thinking["think_seconds"].mean()) / time_scale
    return Pace(taken - float(thinking["overslept_seconds"].mean()) / time_scale, taken)


def _transfers(updates: pd.DataFrame, scenario: Scenario) -> Seconds:
    """Return the part of each transfer that the links explain, up to the longest they can take."""
    found: Seconds = updates["transfer_seconds"].to_numpy(np.float64, copy=True)
    same, own = _links(scenario)
    for column, value, link in (
        *(("device_class", name, link) for name, link in same.items()),
        *(("worker", index, link) for index, link in own.items()),
    ):
        rows = (updates[column] == value).to_numpy()
        most = _longest(updates[rows], link, scenario)
        found[rows] = np.minimum(found[rows], most)
    return found


def _links(scenario: Scenario) -> tuple[dict[str, Link], dict[int, Link]]:
    """Return the links of classes, and of the devices that have one of their own."""
    classes = scenario.workers.classes.items()
    same = {name: member.link for name, member in classes if not differs(member)}
    found = devices(scenario) if len(same) < len(classes) else ()
    return same, {one.worker: one.link for one in found if one.device_class not in same}


def _longest(updates: pd.DataFrame, own: Link, scenario: Scenario) -> Seconds | float:
    """Return the links' maximum time: all workers share the PS's link, plus TCP's slow start."""
    server, count = scenario.ps.link, scenario.workers.count
    hops = (own.up, server.down, server.up, own.down)
    if any(hop.loss or hop.jitter or hop.rate_trace or hop.delay_trace for hop in hops):
        return np.inf  # a packet may be late by any number of round trips, or a link slow
    latency = sum(float(hop.delay or 0.0) for hop in hops)
    segment = segment_bytes(own.mtu, server.mtu)
    seconds: Seconds = np.full(len(updates), latency)
    for column, device, shared in (
        ("payload_up_bytes", own.up, server.down),
        ("payload_down_bytes", own.down, server.up),
    ):
        payload = updates[column].to_numpy(np.float64)
        wire = (1 + HEADER_BYTES / segment) * (payload + MESSAGE_BYTES)
        seconds += wire * (_seconds_a_byte(device) + count * _seconds_a_byte(shared))
        seconds += latency * np.log2(1 + wire / FIRST_WINDOW_BYTES)
    return seconds


def _seconds_a_byte(direction: Direction) -> float:
    return 0.0 if direction.rate is None else 1 / direction.rate.bytes_per_second


def missed_evaluations(evaluations: pd.DataFrame, updates: pd.DataFrame, scenario: Scenario) -> int:
    """Count the multiples of ``evaluate.every`` before the end that have no evaluation.

    A mean of ten evaluations in a row spans a longer time by the number of those missed in between.
    If a training ends slightly after its last multiple, by a round or by milliseconds, its final
    evaluation counts for it. Multiples that a round reaches at the same time share one evaluation.
    """
    every, stop = scenario.evaluate.every, scenario.stop
    assert every is not None, "every valid scenario has one"
    by_version = isinstance(every, int)
    reached = evaluations["version" if by_version else "time_seconds"]
    if reached.empty:
        return 0
    limit, step = stop.updates if by_version else stop.time, _exact(every)
    end = min(float(reached.max()), inf if limit is None else limit)
    due = range(1, ceil(_exact(end) / step))
    done = {_exact(one) // step for one in reached[~evaluations["final"]]}
    if not isinstance(every, int):
        return len(set(due) - done)
    moments = updates["time_seconds"].tolist()
    last = {moment: version for version, moment in enumerate(moments, 1)}  # applied at once
    shared = {number: number * every for number in due}
    shared |= {n: last[moments[v - 1]] for n, v in shared.items() if v <= len(moments)}
    return sum(
        version < end and version // every not in done
        for number, version in shared.items()
        if number not in done
    )


def _exact(value: float) -> Fraction:
    """Return a number rounded to a millionth, as a multiple of the interval is one exactly."""
    return Fraction(f"{value:.6f}")
