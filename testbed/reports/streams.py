"""Measures of data streams: what happened to their samples, and what the workers shared."""

from __future__ import annotations

from collections.abc import Callable
from math import nan, prod
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from testbed.reports.measures import number
from testbed.telemetry.rows import STREAMS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from testbed.reports.record import RunRecord
    from testbed.scenario.schema import Scenario
    from testbed.telemetry.ps_events import Produced

COUNTS = ("produced", "used", "buffered", "truncated", "duplicates")

RUNNING = tuple(
    f"stream_{count}"
    for count in ("produced", "used", "truncated", "duplicates", "refused", "missing")
)
"""Columns with a running total of a device's process; its next process counts from 0."""

R = TypeVar("R", bound="RunRecord")


def streams(updates: pd.DataFrame, scenario: Scenario) -> dict[str, Any] | None:
    """Return totals, means over the updates, fullest buffer; None without streams or updates.

    Counts are the sums of each worker's last update: produced = used + buffered + truncated +
    duplicates, without what waited in the buffers of processes that ended. CNC is the share of the
    updates that were compressed.
    """
    if scenario.streams is None or updates.empty:
        return None
    last = latest(updates)
    images = scenario.dataset.images
    each = None if images is None else scenario.dataset.pixel_bytes * prod(images[0])
    produced, buffered = (int(last[f"stream_{one}"].sum()) for one in ("produced", "buffered"))
    injected = updates["injected"]
    return {
        **{f"{name}_samples": int(last[f"stream_{name}"].sum()) for name in COUNTS},
        "buffered_bytes": None if each is None else each * buffered,
        "buffered_samples_max": int(updates["stream_buffered"].max()),
        "rate_mean": number(last["stream_rate"].mean()),
        "rate_deviation": number(last["stream_rate"].std(ddof=0)),
        "wait_seconds_mean": number(updates["stream_wait_seconds"].mean()),
        "wait_seconds_max": number(updates["stream_wait_seconds"].max()),
        "lag_seconds_mean": number(updates["stream_lag_seconds"].mean()),
        "batch_mean": number((updates["samples"] - injected).mean()),
        "injected_samples_mean": number(injected.mean()),
        "injection": _injection(updates, scenario),
        "latency_seconds_mean": number(updates["stream_latency_seconds"].mean()),
        "produced_records": produced // scenario.streams.samples_per_record,
        "refused_records": int(last["stream_refused"].sum()),
        "missing_samples": int(last["stream_missing"].sum()),
        "cnc_ratio": number(updates["compressed"].mean()),
        "floats_per_worker": number(floats_per_worker(updates)),
    }


def restarted(rows: Any, before: Any) -> Any:
    """Return which rows of updates are the first of a new process of their device.

    A process numbers its pushes from 1. ``before``: the device's row before each, 0 for its first.
    """
    less = rows["stream_used"] < before["stream_used"]  # if its first push was not applied
    return (rows["sequence"] <= before["sequence"]) | less


def latest(updates: pd.DataFrame) -> pd.DataFrame:
    """Return each worker's last update, with running totals over all processes of its device."""
    last = updates.groupby(["worker", _processes(updates)]).last()
    ends = last.groupby("worker").last()
    ends[[*RUNNING]] = last.groupby("worker")[[*RUNNING]].sum()
    return ends


def _processes(updates: pd.DataFrame) -> pd.Series[int]:
    """Return the number of the device's process that made each update, from 0."""
    workers = updates["worker"]
    before = updates.groupby("worker")[["sequence", "stream_used"]].shift(fill_value=0)
    new: pd.Series[int] = restarted(updates, before).astype(int)
    return new.groupby(workers).cumsum().rename("process")


def floats_per_worker(updates: pd.DataFrame) -> float:
    """Return the mean number of values that a worker sent."""
    return float(updates.groupby("worker")["entries"].sum().mean())


def lag(events: Sequence[Produced]) -> dict[str, float]:
    """Return, by producer, the share of due records that it had not sent at its last report."""
    last = {event.producer: event for event in events}
    return {name: 1 - event.sent / event.due for name, event in last.items() if event.due}


def _injection(updates: pd.DataFrame, scenario: Scenario) -> dict[str, Any] | None:
    """Return total bytes of shared samples: to the server, from it, and as the paper counts them.

    A sample that a worker shares goes up once, and down to all other workers. The paper assumes
    one byte per pixel, and counts each sample once.
    """
    images, each = scenario.dataset.images, scenario.dataset.pixel_bytes
    delivered = int(updates["injected"].sum())
    if images is None or not delivered:
        return None
    shared, pixels = _shared(updates), prod(images[0])
    return {
        "up_bytes": number(shared * each * pixels),
        "down_bytes": delivered * each * pixels,
        "paper_bytes": number(shared * pixels),
    }


def _shared(updates: pd.DataFrame) -> float:
    """Return the number of samples shared: each goes to all others that push in its round.

    Those of a worker that leaves before it pushes are counted as if it had pushed.
    """
    rounds = updates.groupby("time_seconds")["injected"].agg(["sum", "size"])
    return float((rounds["sum"] / (rounds["size"] - 1).clip(lower=1)).sum())


def total(run: RunRecord, count: str) -> float:
    """Return one of the counts over all devices at the end; NaN without streams."""
    if run.scenario.streams is None:
        return nan
    return float(latest(run.updates)[f"stream_{count}"].sum())


def rates(run: RunRecord) -> pd.Series[float]:
    """Return the last measured rate of each device."""
    return run.updates.groupby("worker")["stream_rate"].last()


def fullest(run: RunRecord) -> float:
    """Return the most samples in a buffer before a batch is taken; NaN without streams."""
    if run.scenario.streams is None:
        return nan
    updates = run.updates
    gone = updates[["stream_used", "stream_truncated", "stream_duplicates"]].sum(axis=1)
    of = [updates["worker"], _processes(updates)]
    held = updates["stream_produced"] - gone.groupby(of).shift(fill_value=0)
    taken = updates["stream_used"] - updates["stream_used"].groupby(of).shift(fill_value=0)
    rooms = updates["stream_rate"].map(run.scenario.streams.policy.buffer().most)
    return float(np.minimum(held, np.maximum(rooms, taken)).max())


def rounds(run: RunRecord) -> int:
    """Count the rounds: all updates of a round are applied at the same time."""
    return int(run.updates["time_seconds"].nunique())


def shared_bytes(run: RunRecord) -> float:
    """Return the bytes shared per round: each sample once, for all receivers, a byte per pixel."""
    images = run.scenario.dataset.images
    if images is None:
        return nan
    return _shared(run.updates) / rounds(run) * prod(images[0])


def of_streams(measure: Callable[[R], float]) -> Callable[[R], float]:
    """Return the measure, NaN for runs of algorithms without streams."""
    return lambda run: measure(run) if STREAMS.keys() <= {*run.updates} else nan
