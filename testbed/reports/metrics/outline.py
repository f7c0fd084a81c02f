"""Metrics that need only the plan of a run and the history of its workers and faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from testbed.reports.history import RunHistory
from testbed.reports.metrics import declared
from testbed.reports.metrics.declared import Sample
from testbed.scenario.schema import Scenario
from testbed.scenario.settings import Stop
from testbed.values.topology import LinkSpec, Plan

MOST_WORKERS = 300
"""With more workers, metrics are per class only."""

BITS = 8


@dataclass(frozen=True)
class Outline:
    """The plan of a run, as far as metrics need it."""

    labels: tuple[str, str]  # values of RUN_LABELS, for all samples of the run
    classes: tuple[str, ...]  # device class of every worker, by index
    stop: Stop  # when the run ends
    paced: frozenset[str] = frozenset()  # classes that have a speed
    # by class; the parameter server's link is that of class ``ps``
    links: Mapping[str, LinkSpec] = field(default_factory=dict)
    time_scale: float = 1.0  # emulated seconds per real second
    per_worker: bool = True  # whether every worker has its own samples
    streams: bool = False  # whether training samples come as data streams

    @classmethod
    def of(cls, scenario: Scenario, plan: Plan, *, per_worker: bool = False) -> Outline:
        """Return the outline of a run; ``per_worker`` overrides MOST_WORKERS."""
        linked = {node.device_class: node.link for node in reversed(plan.workers) if node.link}
        server = {"ps": plan.ps.link} if plan.ps.link else {}
        kinds = scenario.workers.classes.items()
        return cls(
            labels=(plan.run, scenario.algorithm.name),
            classes=tuple(node.device_class for node in plan.workers),
            paced=frozenset(name for name, kind in kinds if kind.speed is not None),
            links=dict(reversed(linked.items())) | server,
            stop=scenario.stop,
            time_scale=scenario.time_scale,
            per_worker=per_worker or len(plan.workers) <= MOST_WORKERS,
            streams=scenario.streams is not None,
        )

    def class_of(self, node: str) -> str:
        """Return the class of a worker; for any other node, its name."""
        index = node.removeprefix("w")
        known = node.startswith("w") and index.isdecimal() and int(index) < len(self.classes)
        return self.classes[int(index)] if known else node

    def samples(self) -> Iterator[Sample]:
        """Yield the planned rates of the links."""
        for name, link in self.links.items():
            for direction, shape in (("up", link.up), ("down", link.down)):
                if shape.rate is not None:
                    rate = float(shape.rate) / BITS
                    yield Sample(declared.RATE_CONFIGURED, rate, (direction, name))


STATES = ("absent", "running", "frozen", "lost", "left")
"""States of a worker; the metric's value is the index in this tuple."""

KINDS = ("crash", "freeze", "kill", "leave", "join", "partition", "link", "slow")
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
