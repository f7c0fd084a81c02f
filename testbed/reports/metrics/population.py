"""Metrics of worker states and faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from testbed.reports.history import RunHistory
from testbed.reports.metrics import declared
from testbed.reports.metrics.metric import Sample
from testbed.reports.metrics.outline import Outline

STATES = ("absent", "running", "frozen", "lost", "left")
"""States of a worker; the metric's value is the index in this tuple."""

KINDS = ("crash", "freeze", "kill", "leave", "join")
"""Kinds of faults that have a sample from the start, so that the first fault is a change."""

MOMENTARY = ("kill", "leave", "join")
"""Faults without a duration: a worker is never counted as being under one."""


def population(
    history: RunHistory, outline: Outline, *, waiting: int, per_worker: bool
) -> Iterator[Sample]:
    """Yield the current samples; ``waiting`` is the number of requests that wait for a reply."""
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
    """Return the worker's state, one of STATES."""
    match history.state(node):
        case "killed":
            return "left"
        case "crashed" | "silent":
            return "left" if node in history.departed else "frozen"
        case state:
            return state
