"""State of a run's workers and faults, reduced from its events and its rows of updates.

The only code that derives the state of a worker or sums up its updates: `testbed top`, the metrics,
the verdict and the charts use it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from testbed.reports.measures import UNAUTHENTICATED
from testbed.reports.verdict import LATE_FAULT_LIMIT_SECONDS
from testbed.telemetry.entry import Entry, only
from testbed.telemetry.event import Event
from testbed.telemetry.event_kinds import Exited, FaultApplied, Resumed, StateChanged
from testbed.telemetry.folder import ENDED
from testbed.telemetry.ps_events import (
    Crashed,
    Finished,
    Gap,
    Joined,
    Left,
    Rejected,
    Restored,
    Silent,
)
from testbed.telemetry.rows import UPDATE, Rows

if TYPE_CHECKING:
    import pandas as pd

STATE_AFTER = {
    **{"freeze": "frozen", "crash": "crashed", "kill": "killed"},
    **{"leave": "left", "join": "running"},
}
"""A worker's state after a fault; other faults leave the state unchanged."""

SEEN_LEAVING = "its departure was noticed by the parameter server"


class FaultSpan(NamedTuple):
    """A fault of one node, in emulated seconds; ``end`` is None until it is undone."""

    kind: str
    node: str
    planned: float
    begin: float
    end: float | None = None


class RunHistory:
    """The reducer. Events after the end of the training change no worker's state.

    Attributes:
        over: whether the training or the run has ended.
        attended: whether the run's controller has seen its end.
        faults: all faults of nodes, in order.
        struck: number of nodes per kind of fault; a node with two faults of a kind counts twice.
        active: faults not undone, by kind and node, with their index in ``faults``.
        departed: nodes that the parameter server saw leave and that have not joined again.
        removed: nodes that ended because their container was stopped, killed or removed.
    """

    def __init__(self) -> None:
        self.over = self.attended = False
        self.faults: list[FaultSpan] = []
        self.active: dict[tuple[str, str], int] = {}
        self.struck = Counter[str]()
        self.departed: set[str] = set()
        self.removed: set[str] = set()
        self._states: dict[str, str] = {}
        self._hit: set[str] = set()
        self._refused: set[str | None] = set()
        self._lost: dict[str, str] = {}

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> Self:
        """Return the history of all events of a run."""
        history = cls()
        for entry in entries:
            history.take(entry.event)
        return history

    def state(self, node: str) -> str:
        """Return running, frozen, crashed, killed, left, lost, silent, or absent until it joins."""
        return self._states.get(node, "absent")

    def lost(self) -> list[tuple[str, str]]:
        """Return how nodes ended early, except for planned ends and refused pushes."""
        return [(node, how) for node, how in self._lost.items() if node not in self._refused]

    def take(self, event: Event) -> None:
        """Process the next event."""
        match event:
            case FaultApplied():
                self._fault(event)
            case Rejected(node, code=code) if code != UNAUTHENTICATED:
                self._refused.add(node)
            case Finished():
                self.over = True
            case StateChanged(state) if state in ENDED:
                self.over = self.attended = True
            case Resumed():
                self.over = False
            case Exited(host_lost=True, planned=False):  # noticed late, perhaps after the end
                self._exit(event)
            case _ if not self.over:
                self._take_during(event)

    def _take_during(self, event: Event) -> None:
        match event:
            case Joined(node):
                self._states[node] = "running"
                self.departed.discard(node)
            case Crashed(node):
                self._states[node] = "crashed"
            case Silent(node) if self.state(node) in ("running", "frozen"):
                self._states[node] = "silent"
            case Gap(node) if self.state(node) == "silent":  # the event is sent when it runs again
                self._states[node] = "running"
            case Left(node):
                self._leave(node)
            case Exited(planned=False):
                self._exit(event)
            case Restored(version, _, updates):
                went_on = f"it resumed from its checkpoint at update {version:,}"
                how = self._lost.get("ps", "ended").removesuffix(", and restarted")
                self._lost["ps"] = f"{how}; {went_on}, and {updates:,} updates were lost"

    def _leave(self, node: str) -> None:
        self.departed.add(node)
        if node not in self._hit:
            self._lost.setdefault(node, SEEN_LEAVING)
        if self.state(node) in ("running", "frozen"):
            self._states[node] = "left"

    def _exit(self, event: Exited) -> None:
        node, status = event.node, event.status
        if node in self.departed & self._hit:
            return
        if self.state(node) not in ("crashed", "killed"):
            self._states[node] = "lost"
        how = f"killed by signal {-status}" if status < 0 else f"ended with status {status}"
        if event.container_ended:
            self.removed.add(node)
            how = "its container was stopped or removed"
        if event.host_lost:
            how = event.how.removeprefix(f"{node}: ")
        self._lost[node] = f"{how}, and restarted" if event.restarted else how

    def _fault(self, event: FaultApplied) -> None:
        self.struck[event.kind] += len(event.nodes) if event.begins else 0
        for node in event.nodes:
            key = (event.kind, node)
            if event.begins:
                self.active[key] = len(self.faults)
                self.faults.append(FaultSpan(*key, event.planned_seconds, event.actual_seconds))
                self._hit.add(node)
                if self._lost.get(node) == SEEN_LEAVING:  # the fault was recorded after its effect
                    del self._lost[node]
            elif (at := self.active.pop(key, None)) is not None:
                self.faults[at] = self.faults[at]._replace(end=event.actual_seconds)
            after = STATE_AFTER.get(event.kind)
            if after is None or self.over:
                continue
            if event.begins:
                self._states[node] = after
            elif self.state(node) in (after, "silent"):
                self._states[node] = "running"


HOLDING = ("freeze", "partition", "link", "slow")
"""Faults that lengthen a worker's cycle, and can be undone."""


def undisturbed(updates: pd.DataFrame, events: Sequence[Entry]) -> pd.DataFrame:
    """Return the updates of cycles that no fault has delayed.

    The others say nothing about the speed of device and links: from the first update after a fault
    begins to the first after its end; for a worker that joins, its first update.
    """
    held = updates["worker"] < 0
    ends: dict[tuple[str, str], float] = {}  # ends of faults: the loop runs backwards
    for event in reversed(only(events, FaultApplied)):
        for node in event.nodes if event.kind in (*HOLDING, "join") else ():
            if not event.begins:
                ends[event.kind, node] = event.actual_seconds
                continue
            own = (updates["node"] == node) & (updates["time_seconds"] > event.planned_seconds)
            if event.kind == "join":  # it was absent until then
                ends["join", node] = event.planned_seconds
            after = own & (updates["time_seconds"] > ends.pop((event.kind, node), inf))
            held |= own & ~(after & (after.cumsum() > 1))
    return updates[~held]


def planned_gaps(faults: Iterable[FaultSpan], time_scale: float) -> dict[str, float]:
    """Return the longest stop (real seconds) that faults planned for each node, for ``gaps``."""
    planned: dict[str, float] = {}
    for fault in faults:
        if fault.kind in ("freeze", "crash"):
            lasted = inf if fault.end is None else (fault.end - fault.begin) / time_scale
            planned[fault.node] = max(lasted, planned.get(fault.node, 0.0))
    return planned


def late_faults(events: Sequence[Entry], time_scale: float) -> list[tuple[str, float]]:
    """Return the faults that began, or were undone, too late, and by how many real seconds."""
    late = []
    for event in only(events, FaultApplied):
        if event.passed_over and not event.nodes:
            continue  # nothing was done
        seconds = (event.actual_seconds - event.planned_seconds) / time_scale
        if seconds > LATE_FAULT_LIMIT_SECONDS:
            what = event.kind if event.begins else f"the end of {event.kind}"
            late.append((f"{what} of {', '.join(event.nodes) or 'no node'}", seconds))
    return late


EMULATED_WINDOW_SECONDS = 10.0
"""The time that current rates refer to."""

TIMES = ("compute_seconds", "think_seconds", "transfer_seconds", "blocked_seconds")

PAYLOAD = {"up": "payload_up_bytes", "down": "payload_down_bytes"}


def per_second(moments: ArrayLike, amounts: ArrayLike, *, now: float) -> float:
    """Return the rate per second, given what came at each moment, in order.

    The rate is measured between rounds, so that an unfinished round does not lower it, unless it
    is already longer than any before.
    """
    times = np.asarray(moments, np.float64)
    if len(times) < 2 or times[-1] == times[0]:
        return 0.0
    late = max(0.0, now - float(times[-1]) - float(np.diff(times).max()))
    return float(np.sum(np.asarray(amounts)[1:])) / (float(times[-1] - times[0]) + late)


class Tally:
    """Running totals of the updates of ``count`` workers; ``layout``: of rows."""

    def __init__(self, count: int, layout: np.dtype[Any] = UPDATE) -> None:
        self.latest: Rows = np.zeros(count, layout)  # the last row of every worker
        self.updates, self.late, self.staleness_sum = np.zeros((3, count), np.int64)
        self.first = np.zeros(count)
        self.previous = np.full(count, -np.inf)  # time of the update before the last
        self.seconds = np.zeros((count, len(TIMES)))
        self.recent = np.zeros(0), np.zeros(0, np.int64)  # times and workers
        self.payload = {way: np.zeros(count, np.int64) for way in PAYLOAD}

    def add(self, rows: Rows) -> None:
        """Add rows, in their order."""
        rows = rows[rows["worker"] < len(self.updates)]
        worker, time = rows["worker"], rows["time_seconds"]
        fresh, at = np.unique(worker, return_index=True)
        new = self.updates[fresh] == 0
        self.first[fresh[new]] = time[at[new]]
        self._pass_on(worker, time)
        if rows.dtype != self.latest.dtype:
            self.latest = np.zeros(len(self.updates), rows.dtype)
        self.latest[worker] = rows  # of several rows of a worker, the last is kept
        np.add.at(self.updates, worker, 1)
        np.add.at(self.staleness_sum, worker, rows["staleness"])
        np.add.at(self.late, worker, rows["late_seconds"] > 0)
        np.add.at(self.seconds, worker, np.stack([rows[name] for name in TIMES], axis=1))
        for way, column in PAYLOAD.items():
            np.add.at(self.payload[way], worker, rows[column])
        times, workers = (
            np.append(*both) for both in zip(self.recent, (time, worker), strict=True)
        )
        kept = times > times.max(initial=0.0) - EMULATED_WINDOW_SECONDS
        self.recent = times[kept], workers[kept]

    @property
    def last(self) -> NDArray[Any]:
        """When the last update of every worker was applied."""
        return self.latest["time_seconds"]

    def pace(self, time: float, workers: Sequence[int]) -> float:
        """Return the current updates per emulated second of some workers."""
        return per_second(*self._moments(workers, time - EMULATED_WINDOW_SECONDS), now=time)

    def _pass_on(self, worker: NDArray[Any], time: NDArray[Any]) -> None:
        """Store each worker's last update as its previous one."""
        order = np.argsort(worker, kind="stable")
        of, at = worker[order], time[order]
        (ends,) = np.nonzero(np.append(of[1:] != of[:-1], True)[: len(of)])
        several = (ends > 0) & (of[ends - 1] == of[ends])
        before = np.where(self.updates[of[ends]] > 0, self.last[of[ends]], -np.inf)
        self.previous[of[ends]] = np.where(several, at[ends - 1], before)

    def _moments(self, members: Sequence[int], since: float) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return when updates of some workers were applied, and how many at each time.

        Only times after ``since``; if these are one round or less, the last two rounds.
        """
        times, workers = self.recent
        found = times[(times > since) & np.isin(workers, members)]
        if len(np.unique(found)) < 2:
            known = np.append(self.last[members][self.updates[members] > 0], self.previous[members])
            latest = np.unique(known[np.isfinite(known)])[-2:]
            found = known[np.isin(known, latest)]
        return np.unique(found, return_counts=True)
