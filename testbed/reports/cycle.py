"""A worker's cycle from push to push, and the part of it that the scenario explains.

Step, think, links and the algorithm's own waiting come from the scenario; the rest from the host.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from testbed.reports.measurements import Pace

if TYPE_CHECKING:
    import pandas as pd

    from testbed.scenario.schema import DeviceClass, Scenario
    from testbed.values.topology import Direction

FRAMING_RATIO = 1 + 66 / 1448
"""Overhead of headers, for full packets."""

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
    for name, member in scenario.workers.classes.items():
        rows = (updates["device_class"] == name).to_numpy()
        most = _longest(updates[rows], member, scenario)
        found[rows] = np.minimum(found[rows], most)
    return found


def _longest(updates: pd.DataFrame, member: DeviceClass, scenario: Scenario) -> Seconds | float:
    """Return the links' maximum time: all workers share the PS's link, plus TCP's slow start."""
    server, own, count = scenario.ps.link, member.link, scenario.workers.count
    hops = (own.up, server.down, server.up, own.down)
    if any(hop.loss or hop.jitter or hop.rate_trace or hop.delay_trace for hop in hops):
        return np.inf  # a packet may be late by any number of round trips, or a link slow
    latency = sum(float(hop.delay or 0.0) for hop in hops)
    seconds: Seconds = np.full(len(updates), latency)
    for column, device, shared in (
        ("payload_up_bytes", own.up, server.down),
        ("payload_down_bytes", own.down, server.up),
    ):
        payload = updates[column].to_numpy(np.float64)
        wire = FRAMING_RATIO * (payload + MESSAGE_BYTES)
        seconds += wire * (_seconds_a_byte(device) + count * _seconds_a_byte(shared))
        seconds += latency * np.log2(1 + wire / FIRST_WINDOW_BYTES)
    return seconds


def _seconds_a_byte(direction: Direction) -> float:
    return 0.0 if direction.rate is None else 1 / direction.rate.bytes_per_second
