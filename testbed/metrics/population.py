"""Who takes part: every worker's state, and the faults that have struck."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from testbed.events.kinds import (
    Crashed,
    Event,
    Exited,
    FaultApplied,
    Finished,
    Joined,
    Left,
    Load,
    Started,
)
from testbed.metrics import declared
from testbed.metrics.outline import Outline
from testbed.metrics.samples import Sample

STATES = ("absent", "running", "frozen", "lost", "left")
"""Of a worker; its metric's value is the place in here."""

KINDS = ("crash", "freeze", "kill", "leave", "join")
"""Faults; of each there is a sample from the beginning on, so that the first one is a change."""

LASTING = ("freeze", "crash")
"""Faults that a worker stands under, until they are undone."""


class Population:
    """The workers of a run, as the events tell."""

    def __init__(self, outline: Outline) -> None:
        self._outline = outline
        self._states = {f"w{index}": "absent" for index in range(len(outline.classes))}
        self._waiting = 0
        self._over = False
        self._struck = Counter[str]()
        self._standing: dict[str, set[str]] = {kind: set() for kind in KINDS}
        self._latest: dict[str, FaultApplied] = {}

    def tell(self, event: Event) -> None:
        """Something has happened."""
        match event:
            case Finished():
                self._over = True
                self._waiting = 0
            case Load(waiting=waiting):
                self._waiting = waiting
            case FaultApplied():
                self._strike(event)
            case _ if self._over:  # whoever goes now goes as planned
                return
            case Started() if set(self._states.values()) == {"absent"}:
                # Simulations that an older testbed recorded have no joins.
                self._states = dict.fromkeys(self._states, "running")
            case Joined(node):
                self._states[node] = "running"
            case Left(node) if self._states.get(node) in ("running", "frozen"):
                self._states[node] = "left"
            case Crashed(node):
                self._states[node] = "frozen"
            case Exited(node, planned=False) if node in self._states:
                self._states[node] = "lost"

    def _strike(self, event: FaultApplied) -> None:
        standing = self._standing.setdefault(event.kind, set())
        if event.begins:
            self._struck[event.kind] += len(event.nodes)
            self._latest[event.kind] = event
        if event.kind in LASTING:
            (standing.update if event.begins else standing.difference_update)(event.nodes)
        for node in self._states.keys() & set(event.nodes):  # the others are no workers
            match event.kind, event.begins:
                case "freeze", True:
                    self._states[node] = "frozen"
                case "freeze", False if self._states[node] == "frozen":
                    self._states[node] = "running"
                case (("kill" | "leave"), True):
                    self._states[node] = "left"
                case "join", True:
                    self._states[node] = "running"

    def samples(self, *, per_worker: bool) -> Iterator[Sample]:
        """What is known now."""
        counts = Counter(self._states.values())
        waiting = min(self._waiting, counts["running"])
        counts.update(running=-waiting, waiting=waiting)
        for state in (*STATES, "waiting"):
            yield Sample(declared.WORKERS, counts[state], (state,))
        for kind, standing in self._standing.items():
            yield Sample(declared.FAULTS, self._struck[kind], (kind,))
            yield Sample(declared.FAULTS_ACTIVE, len(standing), (kind,))
        for kind, event in self._latest.items():
            yield Sample(declared.FAULT_PLANNED, event.planned_seconds, (kind,))
            yield Sample(declared.FAULT_ACTUAL, event.actual_seconds, (kind,))
        if per_worker:
            for node, state in self._states.items():
                labels = (node, self._outline.class_of(node))
                yield Sample(declared.WORKER_STATE, STATES.index(state), labels)
