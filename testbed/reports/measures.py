"""Measures from a run's tables, one function per topic; None for what was not measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import inf
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from testbed.algorithms.frame.stop import DIVERGED, Schedule
from testbed.algorithms.frame.worker_session import NOT_FINITE
from testbed.models.metrics import ACCURACY
from testbed.reports.measurements import Flow, Pace
from testbed.reports.verdict import BUSY_LIMIT_RATIO
from testbed.scenario.devices import any_differs, devices
from testbed.scenario.durations import (
    PER_DEVICE,
    ProfileTime,
    RandomDuration,
    StepTime,
    class_pace,
)
from testbed.scenario.metrics import clients_by
from testbed.telemetry.entry import NAMES, Entry, only
from testbed.telemetry.event_kinds import MemoryRead
from testbed.telemetry.ps_events import Done, Finished, Gap, Omitted, Rejected

if TYPE_CHECKING:
    import pandas as pd

    from testbed.scenario.schema import Scenario

WINDOW = 10
"""Number of evaluations in a moving average."""

UNEVEN_BATCHES_RATIO = 2.0
"""Largest over smallest batch, above which a speed should depend on the batch."""

UNAUTHENTICATED = "UNAUTHENTICATED"
"""Status code for a call without the run's token."""

HEADER_BYTES = 66
"""Ethernet (14), IPv4 (20) and TCP with time stamps (32), in front of every packet."""


def moving_average(values: pd.Series[float], *, window: int = WINDOW) -> pd.Series[float]:
    """Return the mean of each value and those before it; NaN until there are ``window`` values."""
    return values.rolling(window).mean()


def accuracy(evaluations: pd.DataFrame, scenario: Scenario) -> dict[str, float | None]:
    """Return accuracies: the best during the training, final (all test samples), last, and the
    best moving average. None for regression models."""
    during = values(scheduled(evaluations, scenario), ACCURACY)
    return {
        **metric(evaluations, ACCURACY, higher=True),
        "best_moving_average": number(moving_average(during).max()),
    }


def metric(evaluations: pd.DataFrame, name: str, *, higher: bool) -> dict[str, float | None]:
    """Return the best value of a metric during the training, the final and the last."""
    found = values(evaluations, name)
    during = found[~evaluations["final"]]
    return {
        "best": number(during.max() if higher else during.min()),
        "final": final(evaluations, name),
        "last": number(found.iloc[-1]) if len(found) else None,
    }


def values(evaluations: pd.DataFrame, column: str) -> pd.Series[float]:
    """Return a column of the evaluations; NaN if it was not evaluated."""
    if column in evaluations:
        return evaluations[column]
    return evaluations["loss"] * np.nan


def loss(evaluations: pd.DataFrame) -> dict[str, float | None]:
    """Return the lowest, the final and the last loss."""
    found = metric(evaluations, "loss", higher=False)
    return {"lowest": found.pop("best"), **found}


def scheduled(evaluations: pd.DataFrame, scenario: Scenario) -> pd.DataFrame:
    """Return the evaluations during the training that were due: the first of every period.

    Others were requested by the algorithm, as ADSP and ADACOMM do. Counting them, a method would
    look faster or better because it is evaluated more often.
    """
    during, every = evaluations[~evaluations["final"]], scenario.evaluate.every
    assert every is not None, "every valid scenario has one"
    schedule = Schedule.of(every)
    passed = map(schedule.passed, during["version"], during["time_seconds"])
    return during.iloc[np.unique([*passed], return_index=True)[1]]


def final(evaluations: pd.DataFrame, column: str) -> float | None:
    """Return a measure of the evaluation after the end of training."""
    rows = values(evaluations, column)[evaluations["final"]]
    return number(rows.iloc[-1]) if len(rows) else None


def staleness(updates: pd.DataFrame) -> dict[str, float | int | None]:
    """Return the staleness of the updates, and its effect on the step size."""
    age = updates["staleness"]
    return {
        "mean": number(age.mean()),
        "max": int(age.max()) if len(age) else None,
        "sigma_mean": number(updates["sigma_mean"].mean()),
        "dropped": int((updates["step_scale"] == 0).sum()) if len(age) else None,
        "mean_step_scale": number(updates["step_scale"].mean()),
        "mean_global_step_scale": number(damping(updates)),
    }


def damping(updates: pd.DataFrame) -> float:
    """Return the mean of 1 / max(1, staleness)."""
    return float((1 / updates["staleness"].clip(lower=1)).mean())


def encoding(updates: pd.DataFrame, scenario: Scenario) -> dict[str, Any]:
    """Return the encoding of pushes, and an update's mean payload, also as a pickle9 file."""
    return {
        "name": scenario.encoding,
        "update_bytes_mean": number(updates["payload_up_bytes"].mean()),
        "pickle9_update_bytes_mean": number(updates["pickle9_bytes"].mean()),
        "saturated": int(updates["saturated"].sum()),
    }


def cycle(updates: pd.DataFrame) -> dict[str, float | None]:
    """Return statistics of the emulated time between two applied pushes of a worker.

    Its mean over all workers, its deviation around each worker's own mean (standard deviation,
    relative to that mean), and the share of think time; None without two pushes of a worker.
    """
    by_worker = updates.groupby("worker")["time_seconds"]
    between = by_worker.diff().dropna()
    if not between.sum():
        return dict.fromkeys(("mean_seconds", "deviation_ratio", "think_ratio"))
    relative = between / between.groupby(updates["worker"]).transform("mean")
    think = updates.loc[between.index, "think_seconds"]
    return {
        "mean_seconds": number(between.mean()),
        "deviation_ratio": number(relative.std(ddof=0)),
        "think_ratio": number(think.sum() / between.sum()),
    }


def pace(updates: pd.DataFrame, scenario: Scenario) -> Pace | None:
    """Return real seconds for computing and thinking per update, configured and measured.

    None if the scenario sets no time, or fewer than two updates are from workers with a pace.
    Think times are drawn, and steps may be, so that their mean has a standard error.
    """
    classes, of_class = scenario.workers.classes, updates["device_class"].astype(object)
    thinks = {name: scenario.workers.think_of(name) for name in classes}
    speed, each = _step_times(updates, scenario)
    means = {name: None if think is None else float(think.mean) for name, think in thinks.items()}
    think = of_class.map(means).astype("float64")
    computing = updates["compute_seconds"].where(speed.notna())
    thinking = updates["think_seconds"].where(think.notna())
    steps = speed * updates["steps"] + each * updates["samples"]
    if clients_by("workers", scenario) is not None:  # their evaluations also take computing time
        steps = computing - updates["late_seconds"]
    asked = steps.add(think, fill_value=0.0)
    taken = computing.add(thinking, fill_value=0.0)
    paced = asked.notna()
    if (count := int(paced.sum())) < 2 or not asked.sum():
        return None
    varying = [name for name, kind in classes.items() if isinstance(kind.speed, RandomDuration)]
    own = [name for name, kind in classes.items() if isinstance(kind.speed, PER_DEVICE)]
    noise = (computing - steps).where(of_class.isin(own), computing.where(of_class.isin(varying)))
    drawn = thinking.add(noise, fill_value=0.0)[paced].fillna(0.0)
    law = think[paced].fillna(0.0)  # draws vary around the mean of their own distribution
    error = (drawn - drawn.groupby(law).transform("mean")).std(ddof=0) / count**0.5
    asked_seconds, taken_seconds = float(asked.mean()), float(taken.mean())
    scale = scenario.time_scale
    return Pace(asked_seconds / scale, taken_seconds / scale, float(error) / scale)


def _step_times(
    updates: pd.DataFrame, scenario: Scenario
) -> tuple[pd.Series[float], pd.Series[float]]:
    """Return the configured seconds of a step, and in addition per sample, of each update.

    NaN without a speed. Devices may have times of their own, or else those of their class.
    """
    of_class = updates["device_class"].astype(object)
    paces = {name: class_pace(kind.speed) for name, kind in scenario.workers.classes.items()}
    base = of_class.map({name: one and one.base_seconds for name, one in paces.items()})
    each = of_class.map({name: one.sample_seconds if one else 0.0 for name, one in paces.items()})
    if any_differs(scenario):
        found = [one.pace for one in devices(scenario)]
        own = {at: one and one.base_seconds for at, one in enumerate(found)}
        base = updates["worker"].map(own)
        each = updates["worker"].map(
            {at: one.sample_seconds if one else 0.0 for at, one in enumerate(found)}
        )
    return base.astype("float64"), each.astype("float64")


def late_steps(updates: pd.DataFrame, scenario: Scenario) -> pd.Series[bool]:
    """Return whether the steps of updates took longer than their class's speed, if it has one."""
    paced = [name for name, kind in scenario.workers.classes.items() if kind.speed is not None]
    rows = updates[updates["device_class"].isin(paced)]
    late = rows["late_seconds"] > 0
    return late.set_axis(rows["device_class"].astype(str), axis=0)


def uneven_batches(updates: pd.DataFrame, scenario: Scenario) -> dict[str, tuple[float, float]]:
    """Return min and max batch of classes with a fixed speed per step, if max is over twice min."""
    uneven = {}
    steps = updates[updates["steps"] > 0]
    batches = (steps["samples"] / steps["steps"]).groupby(steps["device_class"].astype(str))
    for name, (least, most) in batches.agg(["min", "max"]).iterrows():
        kind = scenario.workers.classes.get(str(name))
        fixed = kind is not None and not isinstance(kind.speed, StepTime | ProfileTime | None)
        if fixed and most > UNEVEN_BATCHES_RATIO * least:
            uneven[str(name)] = (float(least), float(most))
    return uneven


def slowest_classes(scenario: Scenario) -> tuple[str, str]:
    """Return the classes with the slowest links, up and down; an unset rate is unlimited."""
    links = {name: kind.link for name, kind in scenario.workers.classes.items()}
    up = min(links, key=lambda name: links[name].up.rate or inf)
    return up, min(links, key=lambda name: links[name].down.rate or inf)


def gaps(
    events: Sequence[Entry], *, planned: Mapping[str, float] | None = None
) -> dict[str, float]:
    """Return unplanned stops of nodes in real seconds, the longest of each node.

    Args:
        planned: the longest planned stop of each node, by a fault of the scenario or a command;
            nodes that are not in it must run all the time. A gap is what exceeds the planned stop.
    """
    found: dict[str, float] = {}
    for gap in only(events, Gap):
        beyond = gap.seconds - (planned or {}).get(gap.node, 0.0)
        if beyond > 0:
            found[gap.node] = max(beyond, found.get(gap.node, 0.0))
    return found


def largest_gap_seconds(events: Sequence[Entry]) -> float | None:
    """Return the longest stop of any node; None if no node checked for gaps."""
    known = [event.largest_gap_seconds for event in only(events, Done)]
    found = [event.seconds for event in only(events, Gap)]
    return max([*found, *(seconds for seconds in known if seconds is not None)], default=None)


def late_requests_ratio(events: Sequence[Entry]) -> float | None:
    """Return the share of requests that the PS served late; None if it has no configured speed."""
    done = only(events, Done)
    return done[-1].served_late / done[-1].served if done and done[-1].served else None


def flow(
    updates: pd.DataFrame, reading: Mapping[str, Any] | None, *, side: Literal["in", "out"]
) -> Flow:
    """Return one direction of the PS's link, as of the last reading of the kernel's counters.

    The expected wire bytes count packets as the interface does: with segmentation offloads,
    one packet there consists of many TCP segments and has a single header. TCP options in addition
    to time stamps are known on the way in only.
    """
    if reading is None:
        return Flow()
    column, wire, tcp = {
        "in": ("payload_up_bytes", "wire_rx", "tcp_received_bytes"),
        "out": ("payload_down_bytes", "wire_tx", "tcp_acked_bytes"),
    }[side]
    until = updates["wall_seconds"] <= reading["wall_seconds"]
    retransmitted = int(reading[f"retransmitted_{side}_bytes"])
    repeated = retransmitted if side == "out" else 0  # loss on the way in is never counted
    options = int(reading.get("tcp_options_in_bytes", 0)) if side == "in" else 0
    headers = HEADER_BYTES * int(reading[f"{wire}_packets"]) + options
    return Flow(
        payload_bytes=int(updates.loc[until, column].sum()),
        tcp_bytes=int(reading[tcp]),
        retransmitted_bytes=retransmitted,
        wire_bytes=int(reading[f"{wire}_bytes"]),
        expected_wire_bytes=int(reading[tcp]) + repeated + headers,
    )


def last_reading(traffic: pd.DataFrame) -> Mapping[str, Any] | None:
    """Return the last row of traffic.csv from during or after the training; no empty fields."""
    rows = traffic[traffic["wall_seconds"].notna() & traffic["wire_rx_bytes"].notna()]
    if rows.empty:
        return None
    return {str(name): value for name, value in rows.iloc[-1].dropna().items()}


def busyness(traffic: pd.DataFrame, seconds: float | None) -> dict[str, float | None]:
    """Return the host's CPU use in the first ``seconds`` (real) of the training, weighted by time.

    The mean and maximum share of its CPU time in use, and the share of the time during which it
    exceeded the verdict's limit.
    """
    ratios, shares = _during(traffic, "host_busy_ratio", seconds)
    if not len(shares):
        return dict.fromkeys(("mean", "max", "share_above_limit"))
    above = float(shares[ratios > BUSY_LIMIT_RATIO].sum())
    return {
        "mean": float(shares @ ratios),
        "max": float(ratios.max()),
        "share_above_limit": above,
    }


def pressure(traffic: pd.DataFrame, seconds: float | None) -> float | None:
    """Return the share of the first ``seconds`` (real) in which a process waited for a CPU."""
    ratios, shares = _during(traffic, "host_pressure_ratio", seconds)
    return float(shares @ ratios) if len(shares) else None


def _during(
    traffic: pd.DataFrame, column: str, seconds: float | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the values measured during the training, and the share of its time for each."""
    nothing = np.empty(0)
    rows = traffic[traffic["wall_seconds"].notna() & traffic[column].notna()]
    if seconds is None or rows.empty:
        return nothing, nothing
    until: NDArray[np.float64] = rows["wall_seconds"].clip(upper=seconds).to_numpy()
    weights = np.diff(until, prepend=0.0)
    values: NDArray[np.float64] = rows[column].to_numpy()[weights > 0]
    weights = weights[weights > 0]
    return (values, weights / weights.sum()) if len(weights) else (nothing, nothing)


def training_seconds(updates: pd.DataFrame, events: Sequence[Entry]) -> float | None:
    """Return real seconds from the start of the training to its end, or to its last update."""
    for entry in events:
        if isinstance(entry.event, Finished) and entry.elapsed_seconds is not None:
            return entry.elapsed_seconds
    return float(updates["wall_seconds"].max()) if len(updates) else None


def private_bytes_median(events: Sequence[Entry]) -> float | None:
    """Return the median over the workers of their private memory at the last reading."""
    readings = only(events, MemoryRead)
    last = readings[-1].private_bytes if readings else {}
    return median(last.values()) if last else None


def rejected_pushes(events: Sequence[Entry]) -> list[tuple[str, str]]:
    """Return each node with refused calls or pushes, the first reason, and the number of others.

    If the training has diverged, values that are not finite are expected, and left out, no matter
    whether a push or the evaluator had them first.
    """
    reasons: dict[str, str] = {}
    counts: Counter[str] = Counter()
    diverged = any(event.reason.startswith(DIVERGED) for event in only(events, Finished))
    for rejected in only(events, Rejected):
        if rejected.code == UNAUTHENTICATED:
            continue  # it can come from any process
        if diverged and rejected.reason.endswith(NOT_FINITE):
            continue
        node = rejected.node or "an unknown peer"
        reasons.setdefault(node, rejected.reason)
        counts[node] += 1
    for omitted in only(events, Omitted):
        if omitted.kind == NAMES[Rejected]:
            counts[omitted.node or "an unknown peer"] += omitted.count
    more = {
        node: f", and {counts[node] - 1:,} more" if counts[node] > 1 else "" for node in reasons
    }
    return [(node, f"{reason}{more[node]}") for node, reason in reasons.items()]


def number(value: Any) -> float | None:
    """Return a float, or None for None, NaN and infinity."""
    return None if value is None or not np.isfinite(float(value)) else float(value)
