"""The base of every fault: its targets, when it begins, and whether it is undone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Annotated, Protocol

from pydantic import AfterValidator, Field, model_validator

from testbed.errors import InvalidValue
from testbed.values.fields import Count, PositiveDuration, Share, StrictModel
from testbed.values.seeds import stream
from testbed.values.selectors import matches
from testbed.values.units import Duration, Rate

Selectors = Annotated[tuple[str, ...], Field(min_length=1, strict=False)]
ALL_WORKERS: Selectors = ("*",)


def _carries(value: Rate) -> Rate:
    if not value > 0:
        raise InvalidValue(str(value), "a rate above zero; use `partition` to block all traffic")
    return value


class LinkChange(StrictModel):
    """Changes to one direction of a link; other values stay the same.

    Attributes:
        rate: bits per second of Ethernet frames.
        delay: one-way delay; needs netem.
    """

    rate: Annotated[Rate, AfterValidator(_carries)] | None = None
    delay: Duration | None = None


class Actuator(Protocol):
    """The operations on a worker: on a modelled one by the engine, on a node by the controller.

    A worker is an index. Numbers after the last worker's are those of the other nodes that
    faults can target, which feed the streams.

    Raises:
        NodeError: the operation failed.
    """

    def freeze(self, worker: int, *, for_good: bool) -> None:
        """Freeze it; if ``for_good``, no fault will thaw it, and the run no longer counts on it."""

    def thaw(self, worker: int) -> None:
        """Thaw it."""

    def kill(self, worker: int, *, for_good: bool) -> None:
        """Kill its process, even if frozen; that is noticed, and reported to the PS.

        Unless it is ``for_good``, only a ``join`` starts it again.
        """

    def leave(self, worker: int) -> None:
        """Make it leave in order."""

    def join(self, worker: int) -> None:
        """Start it from the beginning; the PS does not know it, or knows that it has left."""

    def partition(self, worker: int) -> None:
        """Block all traffic between it and the PS, without notifying either."""

    def heal(self, worker: int) -> None:
        """Unblock the traffic between it and the PS."""

    def slow(self, worker: int, factor: float) -> None:
        """Multiply the length of its steps by ``factor``, from its next step on."""

    def change_link(self, worker: int, up: LinkChange, down: LinkChange) -> None:
        """Change the given parts of its link; the rest is as in the scenario."""

    def reset_link(self, worker: int) -> None:
        """Restore the scenario's link."""


class Trigger(StrictModel):
    """When a fault begins: exactly one of these.

    Attributes:
        time: emulated time since the start of training.
        version: number of updates in the model.
        accuracy: top-1 accuracy of an evaluation during training.
    """

    time: Duration | None = None
    version: Count | None = None
    accuracy: Share | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Trigger:
        given = [name for name, value in self if value is not None]
        if len(given) != 1:
            found = " and ".join(given) or "none of them"
            raise InvalidValue(found, "one of time, version and accuracy, like {time: 30s}")
        return self

    def __str__(self) -> str:
        if self.time is not None:
            return str(self.time)
        return f"version {self.version}" if self.version else f"accuracy {self.accuracy}"


class FaultConfig(StrictModel, ABC):
    """Base of every fault's options; ``name`` selects the member.

    Attributes:
        workers: possible targets: w3, a pattern like 'w[0-9]', class=slow; all by default.
        count: number of targets to draw from these, by the seed and the fault's position in the
            list.
        share: share of these to draw, in the same way.
    """

    workers: Selectors = ALL_WORKERS
    count: Count | None = None
    share: Share | None = None

    @model_validator(mode="after")
    def _count_or_share(self) -> FaultConfig:
        if self.count is not None and self.share is not None:
            raise InvalidValue(
                f"a count of {self.count} and a share of {self.share:g}", "one of the two"
            )
        return self

    @property
    def is_drawn(self) -> bool:
        """Whether the seed selects the targets; then impossible targets are skipped."""
        return self.count is not None or self.share is not None

    @property
    def targets_workers(self) -> bool:
        """Whether it targets workers, and not the nodes that feed their streams."""
        return True

    @property
    def selectors(self) -> Selectors:
        """The selectors of its possible targets."""
        return self.workers

    def candidates(self, classes: Sequence[str], others: Sequence[str] = ()) -> list[int]:
        """Return the numbers of the nodes that match the selectors.

        Args:
            classes: of the workers, by index.
            others: the names of the nodes that are numbered after them.
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
        """Return the numbers of its targets.

        Args:
            classes: of the workers, by index.
            seed: of the scenario; selects the targets if there is a count or a share.
            place: its position in the scenario's list of faults.
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
        """Yield number, name and class of its possible targets."""
        if self.targets_workers:
            yield from ((one, f"w{one}", device_class) for one, device_class in enumerate(classes))
        else:
            yield from ((number, name, "") for number, name in enumerate(others, len(classes)))

    @staticmethod
    def _selects(selector: str, name: str, device_class: str) -> bool:
        return matches(selector, name=name, device_class=device_class)


class TimedFault(FaultConfig):
    """A fault that begins at a planned point.

    Attributes:
        at: when it begins.
    """

    at: Trigger

    @property
    def moment(self) -> str:
        """When it begins, as text."""
        return str(self.at)

    @abstractmethod
    def apply(self, actuator: Actuator, worker: int) -> None:
        """Apply it to a worker."""


class PassingFault(TimedFault):
    """A fault that can be undone.

    Attributes:
        duration: how long it lasts, in emulated time; by default until the end.
        every: interval at which it begins again, in emulated time.
    """

    duration: PositiveDuration | None = Field(default=None, alias="for")
    every: PositiveDuration | None = None

    @model_validator(mode="after")
    def _ends_before_it_recurs(self) -> PassingFault:
        if self.every is not None and (self.duration is None or self.duration >= self.every):
            found = "no `for`" if self.duration is None else f"`for` of {self.duration}"
            raise InvalidValue(
                f"{found} with `every` of {self.every}", "a `for` shorter than `every`"
            )
        return self

    @abstractmethod
    def undo(self, actuator: Actuator, worker: int) -> None:
        """Undo it."""


class FaultOfAnyNode(PassingFault):
    """A fault that can be undone, of workers or of the nodes that feed their streams.

    Attributes:
        nodes: targets instead of workers: broker, producer0, a pattern like 'producer*'.
    """

    nodes: Selectors | None = None

    @model_validator(mode="after")
    def _workers_or_nodes(self) -> FaultOfAnyNode:
        if (
            self.nodes is not None and self.workers != ALL_WORKERS
        ):  # a run's saved scenario has both
            raise InvalidValue("workers and nodes", "one of the two")
        return self

    @property
    def targets_workers(self) -> bool:
        return self.nodes is None

    @property
    def selectors(self) -> Selectors:
        return self.workers if self.nodes is None else self.nodes
