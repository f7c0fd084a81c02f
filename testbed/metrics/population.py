"""Which workers take part, and the faults that have struck."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from testbed.metrics import declared
from testbed.metrics.metric import Sample
from testbed.metrics.outline import Outline
from testbed.reports.history import RunHistory

STATES = ("absent", "running", "frozen", "lost", "left")
"""Of a worker; the metric's value is the index in here."""

KINDS = ("crash", "freeze", "kill", "leave", "join")
"""Faults; each has a sample from the beginning, so that the first one is a change."""

MOMENTARY = ("kill", "leave", "join")
"""Faults under which no worker stands."""


def population(
    history: RunHistory, outline: Outline, *, waiting: int, per_worker: bool
) -> Iterator[Sample]:
    """What is known now; ``waiting`` requests wait for their reply."""
    nodes = [f"w{index}" for index in range(len(outline.classes))]
    states = {node: worker_state(history, node) for node in nodes}
    counts = Counter(states.values())
    waiting = 0 if history.over else min(waiting, counts["running"])
    counts.update(running=-waiting, waiting=waiting)
    for state in (*STATES, "waiting"):
        yield Sample(declared.WORKERS, counts[state], (state,))
    active = Counter(kind for kind, _ in history.active if kind not in MOMENTARY)
    for kind in dict.fromkeys((*KINDS, *history.struck)):
        yield Sample(declared.FAULTS, history.struck[kind], (kind,))
        yield Sample(declared.FAULTS_ACTIVE, active[kind], (kind,))
    for kind, fault in {fault.kind: fault for fault in history.faults}.items():
        yield Sample(declared.FAULT_PLANNED, fault.planned, (kind,))
        yield Sample(declared.FAULT_ACTUAL, fault.begin, (kind,))
    if per_worker:
        for node, state in states.items():
            labels = (node, outline.class_of(node))
            yield Sample(declared.WORKER_STATE, STATES.index(state), labels)


def worker_state(history: RunHistory, node: str) -> str:
    """The state among STATES."""
    match history.state(node):
        case "killed":
            return "left"
        case "crashed" | "silent":
            return "left" if node in history.departed else "frozen"
        case state:
            return state
