"""A worker's cycle from push to push, and how much of it is what the scenario makes it.

Step, think, the links and the algorithm's own waiting are the scenario's; the rest is the host's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from testbed.reports.measurements import Pace

if TYPE_CHECKING:
    import pandas as pd

    from testbed.scenario.direction import Direction
    from testbed.scenario.schema import DeviceClass, Scenario

FRAMING_RATIO = 1 + 66 / 1448
"""Headers beside what a full packet carries."""

MESSAGE_BYTES = 200
"""Of gRPC, beside the payload."""

FIRST_WINDOW_BYTES = 14480
"""Ten segments, which TCP sends before it has heard anything; twice as many in every round trip."""

Seconds = NDArray[np.float64]


@dataclass(frozen=True)
class HostShare:
    """What the host added to the time between two pushes of a worker.

    Attributes:
        unexplained_ratio: the share that was neither the step as its class has it, nor think as it
            was drawn, nor transfer as the links make it, nor waiting for the algorithm; None
            where no worker thinks, or the clock is virtual.
        overslept_ratio: by how much thinking was longer than what was drawn, as a share of that.
    """

    unexplained_ratio: float | None = None
    overslept_ratio: float | None = None


def host_share(
    updates: pd.DataFrame, scenario: Scenario, *, going: pd.DataFrame | None = None
) -> HostShare:
    """The host's part, over all updates but each worker's first; an update stands for its push.

    Of these only those count that are also in ``going``, if that is given.
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
    """Thinking alone, as it was drawn and as it was slept, in real seconds; None if nobody does."""
    thinking = updates[updates["think_seconds"] > 0]
    if thinking.empty:
        return None
    taken = float(thinking["think_seconds"].mean()) / time_scale
    return Pace(taken - float(thinking["overslept_seconds"].mean()) / time_scale, taken)


def _transfers(updates: pd.DataFrame, scenario: Scenario) -> Seconds:
    """What of each transfer is the links': all of it, up to what they can take at the most."""
    found: Seconds = updates["transfer_seconds"].to_numpy(np.float64, copy=True)
    for name, member in scenario.workers.classes.items():
        rows = (updates["device_class"] == name).to_numpy()
        most = _longest(updates[rows], member, scenario)
        found[rows] = np.minimum(found[rows], most)
    return found


def _longest(updates: pd.DataFrame, member: DeviceClass, scenario: Scenario) -> Seconds | float:
    """The longest that the links take: all workers at once at the PS's, and TCP's slow start."""
    server, own, count = scenario.ps.link, member.link, scenario.workers.count
    hops = (own.up, server.down, server.up, own.down)
    if any(hop.loss or hop.jitter or hop.rate_trace or hop.delay_trace for hop in hops):
        return np.inf  # a packet may be late by any number of round trips, or a link thin
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
