"""A node's link in a scenario: the shaping of each direction, or the recordings it follows."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, WithJsonSchema, model_validator

from testbed.errors import InvalidValue
from testbed.values.fields import (
    AnyDuration,
    BelowOne,
    PositiveDuration,
    PositiveRate,
    StrictModel,
    Word,
)
from testbed.values.topology import Direction
from testbed.values.units import Duration, Quantity, Rate, Size

TRACED = ("rate", "delay")
"""Fields of a direction that may follow a recording."""


class Recording(StrictModel):
    """A recording that a value follows from the start of training.

    Attributes:
        trace: the file, relative to the scenario: CSV or, for a rate, a packet-delivery trace.
        then: at its end, `repeat` it from the beginning or `hold` its last value.
        offset: start position of a worker: `drawn` from the seed, or `none` for the beginning.
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
    except InvalidValue:
        return queue
    if size is None:
        return queue
    drained = f"{queue} at 1mbit drains in {size * 8 / 1e3:g}ms"
    raise InvalidValue(queue, f"the time that a full queue takes to drain, like 100ms: {drained}")


class TracedDirection(Direction):
    """One direction of a link. Omitted values are not shaped; a delay or a loss of 0 is none.

    ``rate: {trace: FILE}`` is short for ``rate_trace: {trace: FILE}``, and the same for ``delay``.

    Attributes:
        rate: bits per second of Ethernet frames; for a recording, its mean.
        delay: one-way delay; requires netem.
        jitter: standard deviation of the delay, at most the delay; requires netem.
        distribution: law of the jitter; normal by default.
        loss: share of lost packets; requires netem.
        loss_correlation: correlation between the losses of successive packets: 0 for independent
            losses; towards 1, losses occur in ever longer bursts.
        queue: time that a full queue takes to drain at ``rate``; by default max(100 ms, round
            trip).
        rate_trace: the recording that the rate follows.
        delay_trace: the recording that the delay follows.
    """

    rate: Annotated[PositiveRate | None, WithJsonSchema(_or_recording(Rate))] = None
    delay: Annotated[AnyDuration | None, WithJsonSchema(_or_recording(Duration))] = None
    jitter: AnyDuration | None = None
    loss: BelowOne | None = None
    queue: Annotated[PositiveDuration | None, BeforeValidator(_no_size)] = None
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
    def _fits_together(self) -> TracedDirection:
        has_rate = self.rate is not None or self.rate_trace is not None
        has_delay = self.delay is not None or self.delay_trace is not None
        if self.jitter and not has_delay:
            raise InvalidValue("a jitter without a delay", "a delay too, which it varies")
        if self.jitter is not None and self.delay is not None and self.jitter > self.delay:
            raise InvalidValue(f"a jitter of {self.jitter}", f"at most the delay, {self.delay}")
        if self.distribution is not None and self.jitter is None:
            raise InvalidValue("a distribution without a jitter", "a jitter too, whose law it is")
        if self.loss_correlation is not None and self.loss is None:
            raise InvalidValue(
                "a loss_correlation without a loss", "a `loss` too, the share of lost packets"
            )
        if self.queue is not None and not has_rate:
            raise InvalidValue("a queue without a rate", "a rate too, at which it drains")
        return self


class Link(StrictModel):
    """A node's link.

    Attributes:
        up: from the node to the switch.
        down: from the switch to the node.
    """

    up: TracedDirection = TracedDirection()
    down: TracedDirection = TracedDirection()
