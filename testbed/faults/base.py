"""What every fault says: whom it strikes, when it comes, and whether it is undone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Protocol

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from testbed.errors import Unfit
from testbed.seeds import stream
from testbed.values.selectors import matches
from testbed.values.units import Duration, Rate

if TYPE_CHECKING:
    from testbed.faults.link import Change


def _above_zero(value: Duration) -> Duration:
    if not value > 0:
        raise Unfit(str(value), "a duration above zero")
    return value


def _carries(value: Rate) -> Rate:
    if not value > 0:
        raise Unfit(str(value), "a rate above zero; a `partition` lets nothing through")
    return value


PositiveDuration = Annotated[Duration, AfterValidator(_above_zero)]
PositiveRate = Annotated[Rate, AfterValidator(_carries)]
Share = Annotated[float, Field(gt=0, le=1, strict=True)]
Count = Annotated[int, Field(ge=1, le=10**12, strict=True)]
Probability = Annotated[float, Field(ge=0, le=1, strict=True)]
Selectors = Annotated[tuple[str, ...], Field(min_length=1, strict=False)]


class Actuator(Protocol):
    """What can be done to a worker: to a modelled one by the engine, to a node by the controller.

    Raises:
        NodeError: it cannot be done.
    """

    def freeze(self, worker: int, *, for_good: bool) -> None:
        """Stop it where it is; where nothing will thaw it, nobody reckons with it any more."""

    def thaw(self, worker: int) -> None:
        """Let it go on."""

    def kill(self, worker: int) -> None:
        """End its process, also one that stands still; that is noticed, and told to the PS."""

    def leave(self, worker: int) -> None:
        """Have it leave in order."""

    def join(self, worker: int) -> None:
        """Bring it up, from its beginning; the PS does not know it, or knows that it has left."""

    def partition(self, worker: int) -> None:
        """Let nothing through between it and the PS, and tell neither."""

    def heal(self, worker: int) -> None:
        """Let it reach the PS again."""

    def slow(self, worker: int, factor: float) -> None:
        """Have its steps take so many times as long, from its next one on."""

    def change_link(self, worker: int, up: Change, down: Change) -> None:
        """Change its link where that is asked for; the rest is as in the scenario."""

    def reset_link(self, worker: int) -> None:
        """Make its link what the scenario says."""


class Part(BaseModel):
    """Frozen, and strict about unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Moment(Part):
    """When a fault comes: exactly one of these.

    Attributes:
        time: so long after the training has started, in emulated time.
        version: so many updates are in the model.
        accuracy: an evaluation during training found this share of the test images right.
    """

    time: Duration | None = None
    version: Count | None = None
    accuracy: Share | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Moment:
        given = [name for name, value in self if value is not None]
        if len(given) != 1:
            found = " and ".join(given) or "no moment"
            raise Unfit(found, "one of time, version and accuracy, like {time: 30s}")
        return self

    def __str__(self) -> str:
        if self.time is not None:
            return str(self.time)
        return f"version {self.version}" if self.version else f"accuracy {self.accuracy}"


class FaultConfig(Part, ABC):
    """Base of every fault's options; ``name`` selects the member.

    Attributes:
        workers: whom it may strike: w3, a pattern like 'w[0-9]', class=slow; all by default.
        count: strike so many of them, drawn from the seed and the fault's place in the list.
        share: strike this share of them, drawn likewise.
    """

    workers: Selectors = ("*",)
    count: Count | None = None
    share: Share | None = None

    @model_validator(mode="after")
    def _count_or_share(self) -> FaultConfig:
        if self.count is not None and self.share is not None:
            raise Unfit(f"a count of {self.count} and a share of {self.share:g}", "one of the two")
        return self

    def meant(self, classes: Sequence[str]) -> list[int]:
        """The workers that the selectors name; ``classes`` are the workers', by index."""
        return [
            worker
            for worker, device_class in enumerate(classes)
            if any(self._means(one, worker, device_class) for one in self.workers)
        ]

    def nobody(self, classes: Sequence[str]) -> list[str]:
        """The selectors that name no worker."""
        return [
            selector
            for selector in self.workers
            if not any(self._means(selector, *each) for each in enumerate(classes))
        ]

    def struck(self, classes: Sequence[str], *, seed: int, place: int) -> tuple[int, ...]:
        """The workers that it strikes, being at a place in the scenario's list."""
        meant = self.meant(classes)
        count = self.count if self.share is None else max(1, round(self.share * len(meant)))
        if count is None:
            return tuple(meant)
        draws = stream(seed, "faults", str(place))
        return tuple(sorted(draws.choice(meant, min(count, len(meant)), replace=False).tolist()))

    @property
    def kind(self) -> str:
        """Which fault it is, as the scenario has it."""
        return str(vars(self)["name"])

    @property
    @abstractmethod
    def moment(self) -> str:
        """When it comes, in words."""

    @staticmethod
    def _means(selector: str, worker: int, device_class: str) -> bool:
        return matches(selector, name=f"w{worker}", device_class=device_class)


class TimedFault(FaultConfig):
    """A fault that comes at a moment.

    Attributes:
        at: when it comes.
    """

    at: Moment

    @property
    def moment(self) -> str:
        """When it comes, in words."""
        return str(self.at)

    @abstractmethod
    def strike(self, actuator: Actuator, worker: int) -> None:
        """It comes."""


class PassingFault(TimedFault):
    """A fault that can be undone.

    Attributes:
        duration: how long it lasts, in emulated time; without it, to the end.
        every: it comes again so long after it came, again and again.
    """

    duration: PositiveDuration | None = Field(default=None, alias="for")
    every: PositiveDuration | None = None

    @model_validator(mode="after")
    def _ends_before_it_recurs(self) -> PassingFault:
        if self.every is not None and (self.duration is None or self.duration >= self.every):
            found = "no `for`" if self.duration is None else f"`for` of {self.duration}"
            raise Unfit(f"{found} with `every` of {self.every}", "a `for` shorter than `every`")
        return self

    @abstractmethod
    def undo(self, actuator: Actuator, worker: int) -> None:
        """Its time is over."""
