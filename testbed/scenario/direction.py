"""A node's link in a scenario: the shaping of each direction, or the recordings it follows."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, GetJsonSchemaHandler, model_validator
from pydantic_core import CoreSchema

from testbed.errors import InvalidValue
from testbed.scenario.per_device import DrawnDelay, DrawnRate, Table
from testbed.scenario.profiles import known_link
from testbed.values.fields import (
    AnyDuration,
    BelowOne,
    PositiveDuration,
    PositiveRate,
    StrictModel,
    Word,
)
from testbed.values.recordings import Reading
from testbed.values.topology import LARGEST_MTU, LEAST_MTU, Direction
from testbed.values.units import Size

TRACED = ("rate", "delay")
"""Fields of a direction that may follow a recording, or differ from device to device."""

FORMS = {"trace": ["trace"], "each": ["each", "mean"], "table": ["file", "column"]}
"""What may determine such a field instead of a value, with its required keys."""


TraceFormat = Literal["csv", "pensieve", "norway", "5g", "monroe", "fcc"]


class Recording(StrictModel):
    """A recording that a value follows from the start of training.

    Attributes:
        trace: the file, relative to the scenario: CSV or, for a rate, a packet-delivery trace.
        format: layout of the file, if it is that of another tool or data set.
        column: column of the value in a CSV file with other columns.
        unit: unit of that column.
        time: column of the time; by default the first one.
        time_unit: unit of times that are numbers; seconds by default.
        where: values that rows must have in other columns, for example the number of a device.
        then: at its end, `repeat` it from the beginning or `hold` its last value.
        offset: start position of a worker: `drawn` from the seed, or `none` for the beginning.
    """

    trace: Word
    format: TraceFormat | None = None
    column: Word | None = None
    unit: Word | None = None
    time: Word | None = None
    time_unit: Literal["us", "ms", "s", "min", "h"] | None = None
    where: dict[Word, Word | int | float] | None = None
    then: Literal["repeat", "hold"] = "repeat"
    offset: Literal["drawn", "none"] = "drawn"

    def __hash__(self) -> int:
        return hash((self.trace, self.format, self.column, self.then, self.offset))

    @property
    def reading(self) -> Reading | None:
        """How the file is read; None if it is a recording of our own or Mahimahi's."""
        given = self.model_dump(exclude={"trace", "then", "offset", "format", "where"})
        named = {name: value for name, value in given.items() if value is not None}
        if self.format is None and not named and not self.where:
            return None
        where = {name: str(value) for name, value in (self.where or {}).items()}
        return Reading(self.format or "csv", where=where, **named)


def _other_field(name: str, given: dict[str, Any]) -> tuple[str, Any]:
    """Return the field that a mapping in place of a value is short for, and its value."""
    if given.keys() == {"table"}:
        return f"{name}_table", given["table"]
    return f"{name}_{'each' if 'each' in given else 'trace'}", given


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

    ``rate: {trace: FILE}`` is short for ``rate_trace: {trace: FILE}``, ``{each: LAW, mean: RATE}``
    for ``rate_each`` and ``{table: ...}`` for ``rate_table``, and the same for ``delay``.

    Attributes:
        rate: bits per second of Ethernet frames; the mean of a recording, or of a class's devices.
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
        rate_each: the law from which the rate is drawn once for each device.
        delay_each: the law from which the delay is drawn once for each device.
        rate_table: the table with the rate of each device.
        delay_table: the table with the delay of each device.
    """

    rate: PositiveRate | None = None
    delay: AnyDuration | None = None
    jitter: AnyDuration | None = None
    loss: BelowOne | None = None
    queue: Annotated[PositiveDuration | None, BeforeValidator(_no_size)] = None
    loss_correlation: BelowOne | None = None
    rate_trace: Recording | None = None
    delay_trace: Recording | None = None
    rate_each: DrawnRate | None = None
    delay_each: DrawnDelay | None = None
    rate_table: Table | None = None
    delay_table: Table | None = None

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Return the schema, in which a value may also be what it is short for."""
        schema = super().__get_pydantic_json_schema__(core_schema, handler)
        fields = handler.resolve_ref_schema(schema)["properties"]
        for name in TRACED:
            trace, each, table = (
                {**fields[f"{name}_{form}"]["anyOf"][0], "required": required}
                for form, required in FORMS.items()
            )
            only = {"required": ["table"], "additionalProperties": False}
            tabled = {"type": "object", "properties": {"table": table}, **only}
            own = {key: fields[name].pop(key) for key in [*fields[name]] if key != "description"}
            fields[name]["anyOf"] = [own, trace, each, tabled]
        return schema

    @model_validator(mode="before")
    @classmethod
    def _recorded(cls, given: Any) -> Any:
        """Move recordings, laws and tables to their fields."""
        if not isinstance(given, dict):
            return given
        moved = dict(given)
        for name in TRACED:
            if isinstance(given.get(name), dict):
                field, value = _other_field(name, moved.pop(name))
                moved[field] = value
        return moved

    @model_validator(mode="after")
    def _has_mean(self) -> TracedDirection:
        """Take the mean of a law as the value of the whole class."""
        means = {
            name: drawn.mean
            for name in TRACED
            if getattr(self, name) is None and (drawn := getattr(self, f"{name}_each"))
        }
        return self.model_copy(update=means) if means else self

    @model_validator(mode="after")
    def _fits_together(self) -> TracedDirection:
        has_rate = self.rate is not None or bool(self.origins("rate"))
        has_delay = self.delay is not None or bool(self.origins("delay"))
        for name in TRACED:
            if len(fields := self.origins(name)) > 1:
                raise InvalidValue(f"{' and '.join(fields)}", "one of them")
        for name in TRACED:
            drawn = getattr(self, f"{name}_each")
            if drawn is not None and drawn.mean != getattr(self, name):
                found = f"a {name} of {getattr(self, name)} and a mean of {drawn.mean}"
                raise InvalidValue(found, f"{name}_each alone, whose mean is the {name}")
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

    def origins(self, name: str) -> tuple[str, ...]:
        """Return the fields that determine the values of ``rate`` or ``delay`` in its place."""
        fields = (f"{name}_{form}" for form in FORMS)
        return tuple(field for field in fields if getattr(self, field) is not None)

    @property
    def differs(self) -> bool:
        """Whether devices of a class have different values."""
        return any(name[-6:] != "_trace" for one in TRACED for name in self.origins(one))


class Link(StrictModel):
    """A node's link.

    Attributes:
        profile: a shipped link, whose rates and delays apply where `up` and `down` set none.
        mtu: bytes of the largest IP packet, at both ends of the link; 1,500 by default.
        up: from the node to the switch.
        down: from the switch to the node.
    """

    profile: Word | None = None
    mtu: Annotated[int, Field(ge=LEAST_MTU, le=LARGEST_MTU)] | None = None
    up: TracedDirection = TracedDirection()
    down: TracedDirection = TracedDirection()

    @model_validator(mode="before")
    @classmethod
    def _profiled(cls, given: Any) -> Any:
        """Fill in the fields of a profile that are not given."""
        if not isinstance(given, dict) or not isinstance(name := given.get("profile"), str):
            return given
        filled = dict(given)
        for way, values in known_link(name).directions().items():
            own = given.get(way)
            if own is None or isinstance(own, dict):
                filled[way] = _without_others(values, own or {}) | (own or {})
        return filled


def _without_others(values: dict[str, str], own: dict[str, Any]) -> dict[str, str]:
    """Return a profile's values of the fields that have no other origin."""
    return {
        name: value
        for name, value in values.items()
        if not any(f"{name}_{form}" in own for form in FORMS)
    }
