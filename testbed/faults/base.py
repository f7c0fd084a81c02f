"""The base classes of faults: targets, beginning and end of a fault."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Annotated, Protocol

from pydantic import Field, model_validator

from testbed.errors import InvalidValue
from testbed.values.fields import (
    Count,
    FiniteNumber,
    Key,
    Pattern,
    PositiveDuration,
    PositiveNumber,
    Share,
    StrictModel,
)
from testbed.values.seeds import stream
from testbed.values.topology import matches
from testbed.values.units import Duration

Selectors = Annotated[tuple[str, ...], Field(min_length=1, strict=False)]
ALL_WORKERS: Selectors = ("*",)


class Actuator(Protocol):
    """Begins and ends faults: implemented by a simulation's engine, and by the controller.

    ``target`` is the index of a worker. Higher numbers are the other nodes that can be targets:
    the nodes that feed streams. Beginning a Freeze that does not end means that no fault thaws
    the target, and the run does not wait for it. A worker that was killed starts again only by a
    Join; another node only if the Kill ends.

    Raises:
        NodeError: the operation failed.
    """

    def begin(self, fault: TimedFault, target: int) -> None:
        """Begin a fault."""

    def end(self, fault: PassingFault, target: int) -> None:
        """Undo a fault."""


class Trigger(StrictModel):
    """When a fault begins, or ends. Exactly one field must be set.

    Attributes:
        time: emulated time since the start of training.
        version: number of updates in the model.
        accuracy: top-1 accuracy of an evaluation during training.
        loss: loss of an evaluation during training, or a lower one.
        metrics: values of metrics, by name, one of which an evaluation during training reaches:
            exceeds, or falls below if lower values are better.
        log: a regular expression that a line printed by a node of a workload matches.
    """

    time: Duration | None = None
    version: Count | None = None
    accuracy: Share | None = None
    loss: PositiveNumber | None = None
    metrics: dict[Key, FiniteNumber] | None = None
    log: Pattern | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Trigger:
        given = [name for name, value in self if value not in (None, {})]
        if len(given) != 1:
            found = " and ".join(given) or (
                "neither time, nor version, nor a value of an evaluation, nor log"
            )
            expected = "one of time, version, accuracy, loss, metrics and log, like {time: 30s}"
            raise InvalidValue(found, expected)
        return self

    def __str__(self) -> str:
        if self.time is not None:
            return str(self.time)
        if self.log is not None:
            return f"a line with {self.log!r}"
        if self.version is not None:
            return f"version {self.version}"
        return " or ".join(f"{name} {value:g}" for name, value in self.values.items())

    @property
    def values(self) -> Mapping[str, float]:
        """Values of an evaluation, by name, any of which is enough."""
        named = {"accuracy": self.accuracy, "loss": self.loss}
        return {**{k: v for k, v in named.items() if v is not None}, **(self.metrics or {})}

    def met(self, found: Mapping[str, float | None], *, lower: Collection[str]) -> bool:
        """Return whether an evaluation found one of the values; ``lower`` ones are better."""
        return any(
            value <= wanted if name in lower else value >= wanted
            for name, wanted in self.values.items()
            if (value := found.get(name)) is not None
        )


class FaultConfig(StrictModel, ABC):
    """Base class of the options of a fault; ``name`` selects the kind of fault.

    Attributes:
        workers: possible targets: w3, a pattern like 'w[0-9]', class=slow; by default all workers.
        count: number of targets to draw at random from `workers`. The seed and the position in
            `faults` determine the draw. By default all of `workers` are targets.
        share: fraction of `workers` to draw, instead of `count`.
    """

    workers: Selectors = ALL_WORKERS
    count: Count | None = None
    share: Share | None = None

    @model_validator(mode="after")
    def _count_or_share(self) -> FaultConfig:
        if self.count is not None and self.share is not None:
            raise InvalidValue(
                f"a count of {self.count} and a share of {self.share:g}",
                "either a count or a share",
            )
        return self

    @property
    def is_drawn(self) -> bool:
        """Whether targets are drawn at random; then targets that cannot be hit are skipped."""
        return self.count is not None or self.share is not None

    @property
    def targets_workers(self) -> bool:
        """Whether the fault targets workers, not the nodes that feed their streams."""
        return True

    @property
    def selectors(self) -> Selectors:
        """The selectors of the possible targets."""
        return self.workers

    def candidates(self, classes: Sequence[str], others: Sequence[str] = ()) -> list[int]:
        """Return the numbers of the nodes that match the selectors.

        Args:
            classes: the device classes of the workers, by index.
            others: the names of the nodes that are numbered after the workers.
        """
        return [
            number
            for number, *node in self._nodes(classes, others)
            if any(self._selects(selector, *node) for selector in self.selectors)
        ]

    def unmatched_selectors(self, classes: Sequence[str], others: Sequence[str] = ()) -> list[str]:
        """Return the selectors that match no node; see ``candidates``."""
        nodes = [node for _, *node in self._nodes(classes, others)]
        return [
            selector
            for selector in self.selectors
            if not any(self._selects(selector, *node) for node in nodes)
        ]

    def pick_targets(
        self, classes: Sequence[str], *, seed: int, place: int, others: Sequence[str] = ()
    ) -> tuple[int, ...]:
        """Return the numbers of the targets.

        Args:
            classes: the device classes of the workers, by index.
            seed: seed of the scenario, which determines the draw if there is a count or a share.
            place: position of the fault in the scenario's `faults`.
            others: the names of the nodes that are numbered after the workers.
        """
        candidates = self.candidates(classes, others)
        count = self.count if self.share is None else max(1, round(self.share * len(candidates)))
        if count is None:
            return tuple(candidates)
        draws = stream(seed, "faults", str(place))
        return tuple(
            sorted(draws.choice(candidates, min(count, len(candidates)), replace=False).tolist())
        )

    @property
    def kind(self) -> str:
        """The kind of fault, as the scenario names it."""
        return str(vars(self)["name"])

    @property
    @abstractmethod
    def moment(self) -> str:
        """When it begins, as text."""

    def _nodes(
        self, classes: Sequence[str], others: Sequence[str]
    ) -> Iterator[tuple[int, str, str]]:
        """Yield number, name and class of the nodes that this kind of fault can target."""
        if self.targets_workers:
            yield from ((one, f"w{one}", device_class) for one, device_class in enumerate(classes))
        else:
            yield from ((number, name, "") for number, name in enumerate(others, len(classes)))

    @staticmethod
    def _selects(selector: str, name: str, device_class: str) -> bool:
        return matches(selector, name=name, device_class=device_class)


class TimedFault(FaultConfig):
    """A fault that begins at a planned time, version or accuracy.

    Attributes:
        at: when the fault begins.
    """

    at: Trigger

    @property
    def moment(self) -> str:
        """When it begins, as text."""
        return str(self.at)

    @property
    def end_trigger(self) -> Trigger | None:
        """What ends it, if that is not a time."""
        return None


class PassingFault(TimedFault):
    """A fault that can be undone.

    Attributes:
        duration: how long the fault lasts, in emulated time; by default until the end of training.
        every: emulated time from one beginning of the fault to the next; by default it begins once.
    """

    duration: PositiveDuration | None = Field(default=None, alias="for")
    every: PositiveDuration | None = None

    @property
    def ends(self) -> bool:
        """Whether something undoes the fault before the end of the run."""
        return self.duration is not None or self.end_trigger is not None

    @model_validator(mode="after")
    def _ends_before_it_recurs(self) -> PassingFault:
        if self.every is not None and (self.duration is None or self.duration >= self.every):
            found = "no `for`" if self.duration is None else f"`for` of {self.duration}"
            raise InvalidValue(
                f"{found} with `every` of {self.every}", "a `for` shorter than `every`"
            )
        return self


class FaultOfAnyNode(PassingFault):
    """A fault that can be undone, of workers or of the nodes that feed their streams.

    Attributes:
        nodes: possible targets instead of workers: broker, producer0, a pattern like 'producer*'.
        until: in a workload, the printed line, or the value of a metric, at which the fault ends.
    """

    nodes: Selectors | None = None
    until: Trigger | None = None

    @property
    def end_trigger(self) -> Trigger | None:
        return self.until

    @model_validator(mode="after")
    def _one_end(self) -> FaultOfAnyNode:
        if self.duration is not None and self.until is not None:
            raise InvalidValue("`for` and `until`", "one of them")
        return self

    @model_validator(mode="after")
    def _workers_or_nodes(self) -> FaultOfAnyNode:
        if (
            self.nodes is not None and self.workers != ALL_WORKERS
        ):  # a run's saved scenario has both
            raise InvalidValue("workers and nodes", "either workers or nodes")
        return self

    @property
    def targets_workers(self) -> bool:
        return self.nodes is None

    @property
    def selectors(self) -> Selectors:
        return self.workers if self.nodes is None else self.nodes
