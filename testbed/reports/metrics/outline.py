"""What metrics need to know of a run before it starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from testbed.reports.metrics import declared
from testbed.reports.metrics.metric import Sample
from testbed.scenario.schema import Scenario
from testbed.values.topology import LinkSpec, Plan

MOST_WORKERS = 300
"""With more workers, metrics are per class only."""

BITS = 8


@dataclass(frozen=True)
class Outline:
    """The plan of a run, as far as metrics need it.

    Attributes:
        labels: values of RUN_LABELS, for all samples of the run.
        classes: device class of every worker, by index.
        paced: classes that have a speed.
        links: by class; the parameter server's link is that of class ``ps``.
        stop_updates: updates after which it ends, or None.
        stop_seconds: emulated seconds after which it ends, or None.
        time_scale: emulated seconds per real second.
        per_worker: whether every worker has its own samples.
        streams: whether training samples come as data streams.
    """

    labels: tuple[str, str]
    classes: tuple[str, ...]
    paced: frozenset[str] = frozenset()
    links: Mapping[str, LinkSpec] = field(default_factory=dict)
    stop_updates: int | None = None
    stop_seconds: float | None = None
    time_scale: float = 1.0
    per_worker: bool = True
    streams: bool = False

    @classmethod
    def of(cls, scenario: Scenario, plan: Plan, *, per_worker: bool = False) -> Outline:
        """Return the outline of a run; ``per_worker`` overrides MOST_WORKERS."""
        linked = {node.device_class: node.link for node in reversed(plan.workers) if node.link}
        server = {"ps": plan.ps.link} if plan.ps.link else {}
        stop = scenario.stop
        kinds = scenario.workers.classes.items()
        return cls(
            labels=(plan.run, scenario.algorithm.name),
            classes=tuple(node.device_class for node in plan.workers),
            paced=frozenset(name for name, kind in kinds if kind.speed is not None),
            links=dict(reversed(linked.items())) | server,
            stop_updates=stop.updates,
            stop_seconds=None if stop.time is None else float(stop.time),
            time_scale=scenario.time_scale,
            per_worker=per_worker or len(plan.workers) <= MOST_WORKERS,
            streams=scenario.streams is not None,
        )

    def class_of(self, node: str) -> str:
        """Return the class of a worker; for any other node, its name."""
        index = node.removeprefix("w")
        known = node.startswith("w") and index.isdecimal() and int(index) < len(self.classes)
        return self.classes[int(index)] if known else node

    def progress(self, updates: int, emulated: float) -> float | None:
        """Return the progress of the run, a fraction; None if `stop` has neither updates nor time.

        Of two limits, the one that is closer determines the progress.
        """
        shares = []
        if self.stop_updates:
            shares.append(updates / self.stop_updates)
        if self.stop_seconds:
            shares.append(emulated / self.stop_seconds)
        return min(1.0, max(shares)) if shares else None

    def samples(self) -> Iterator[Sample]:
        """Yield the planned rates of the links."""
        for name, link in self.links.items():
            for direction, shape in (("up", link.up), ("down", link.down)):
                if shape.rate is not None:
                    rate = float(shape.rate) / BITS
                    yield Sample(declared.RATE_CONFIGURED, rate, (direction, name))
