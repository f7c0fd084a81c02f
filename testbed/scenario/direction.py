"""A node's link in a scenario: the shaping of each direction, or the recordings it follows."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, WithJsonSchema, model_validator

from testbed.errors import Unfit
from testbed.topology import Distribution
from testbed.values.fields import AnyDuration, BelowOne, Part, PositiveDuration, PositiveRate, Word
from testbed.values.units import Duration, Quantity, Rate, Size

TRACED = ("rate", "delay")
"""Fields of a direction that may follow a recording."""


class Recording(Part):
    """A file with what was recorded, which a value follows from the start of the training on.

    Attributes:
        trace: the file, relative to the scenario: CSV, or for a rate a packet-delivery trace.
        then: ``repeat`` it from its beginning when it has ended, or ``hold`` its last value.
        offset: where in it a worker begins: ``drawn`` from the seed, or at its beginning.
    """

    trace: Word
    then: Literal["repeat", "hold"] = "repeat"
    offset: Literal["drawn", "none"] = "drawn"


def _or_recording(quantity: type[Quantity]) -> dict[str, Any]:
    """Return the JSON schema of a quantity or a recording, the short form of its field."""
    text = {"type": "string", "pattern": quantity.PATTERN, "description": quantity.DESCRIPTION}
    return {"anyOf": [text, Recording.model_json_schema(), {"type": "null"}], "default": None}


def _no_size(queue: Any) -> Any:
    """Refuse a size: a queue is given as its drain time, as its bytes depend on the rate."""
    try:
        size = Size.parse(queue) if isinstance(queue, str) else None
    except Unfit:
        return queue
    if size is None:
        return queue
    drained = f"{queue} at 1mbit take {size * 8 / 1e3:g}ms"
    raise Unfit(queue, f"the time in which a full queue drains, like 100ms: {drained}")


class Direction(Part):
    """One direction of a link. What is left out is not shaped; a delay or a loss of 0 is none.

    ``rate: {trace: FILE}`` is short for ``rate_trace: {trace: FILE}``, and so for ``delay``.

    Attributes:
        rate: bits per second of Ethernet frames; of one that follows a recording, its mean.
        delay: one-way delay; needs netem.
        jitter: standard deviation of the delay; needs netem and a delay that is not shorter.
        distribution: law of the jitter; normal by default.
        loss: share of packets lost; needs netem.
        loss_correlation: between a packet's loss and the next one's: 0 is independent, towards 1
            losses come in ever longer bursts.
        queue: how long a full queue takes to drain at ``rate``; default max(100 ms, round trip).
        rate_trace: the recording that the rate follows.
        delay_trace: the recording that the delay follows.
    """

    rate: Annotated[PositiveRate | None, WithJsonSchema(_or_recording(Rate))] = None
    delay: Annotated[AnyDuration | None, WithJsonSchema(_or_recording(Duration))] = None
    jitter: AnyDuration | None = None
    loss: BelowOne | None = None
    queue: Annotated[PositiveDuration | None, BeforeValidator(_no_size)] = None
    distribution: Distribution | None = None
    loss_correlation: BelowOne | None = None
    rate_trace: Recording | None = None
    delay_trace: Recording | None = None

    @model_validator(mode="before")
    @classmethod
    def _recorded(cls, given: Any) -> Any:
        """Move recordings to the fields for recordings."""
        if not isinstance(given, dict):
            return given
        recorded = {name for name in TRACED if isinstance(given.get(name), dict)}
        return {f"{name}_trace" if name in recorded else name: one for name, one in given.items()}

    @model_validator(mode="after")
    def _fits_together(self) -> Direction:
        has_rate = self.rate is not None or self.rate_trace is not None
        has_delay = self.delay is not None or self.delay_trace is not None
        if self.jitter and not has_delay:
            raise Unfit("a jitter without a delay", "a delay that it varies")
        if self.jitter is not None and self.delay is not None and self.jitter > self.delay:
            raise Unfit(f"a jitter of {self.jitter}", f"at most the delay, {self.delay}")
        if self.distribution is not None and self.jitter is None:
            raise Unfit("a distribution without a jitter", "a jitter that it is the law of")
        if self.loss_correlation is not None and self.loss is None:
            raise Unfit("a loss_correlation without a loss", "a share of packets lost")
        if self.queue is not None and not has_rate:
            raise Unfit("a queue without a rate", "a rate at which it drains")
        return self


class Link(Part):
    """A node's link.

    Attributes:
        up: from the node to the switch.
        down: from the switch to the node.
    """

    up: Direction = Direction()
    down: Direction = Direction()
