"""State of a run's nodes and faults, reduced from its events one at a time.

The only code that derives the state of a worker: `testbed top`, the metrics, the verdict and the
charts use it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple, Self

from testbed.reports.measures import UNAUTHENTICATED
from testbed.telemetry.entry import Entry
from testbed.telemetry.event_kinds import (
    Crashed,
    Event,
    Exited,
    FaultApplied,
    Finished,
    Gap,
    Joined,
    Left,
    Rejected,
    Restored,
    Resumed,
    Silent,
    Started,
    StateChanged,
)
from testbed.telemetry.folder import ENDED

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
        faults: all faults of nodes, in order.
        struck: number of nodes per kind of fault; a node with two faults of a kind counts twice.
        active: faults not undone, by kind and node, with their index in ``faults``.
        departed: nodes that the parameter server saw leave and that have not joined again.
    """

    def __init__(self) -> None:
        self.over = False
        self.faults: list[FaultSpan] = []
        self.active: dict[tuple[str, str], int] = {}
        self.struck = Counter[str]()
        self.departed: set[str] = set()
        self._states: dict[str, str] = {}
        self._otherwise = "absent"
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
        return self._states.get(node, self._otherwise)

    def lost(self) -> list[tuple[str, str]]:
        """Return the nodes that ended early, neither planned nor for a refused push, and how."""
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
                self.over = True
            case Resumed():
                self.over = False
            case _ if not self.over:
                self._take_during(event)

    def _take_during(self, event: Event) -> None:
        match event:
            case Started() if not self._states:  # older simulations recorded no joins
                self._otherwise = "running"
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
