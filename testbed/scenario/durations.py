"""Durations of steps, waits and coding in a scenario, as laws, means and sums."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Discriminator, Tag

from testbed.payloads import Dense, Keyed, Payload, Quantized, Sparse
from testbed.values.fields import Part, PositiveDuration
from testbed.values.laws import Law
from testbed.values.units import Duration

LEAST_INTERVAL = Duration(0.001)
"""Minimum between two evaluations, which take no emulated time."""


class StepTime(Part):
    """The time of a training step that grows with its batch: ``base + each * samples``.

    Attributes:
        base: emulated time that a step takes with any batch.
        each: emulated time for every sample of its batch.
    """

    base: PositiveDuration
    each: PositiveDuration


class RandomDuration(Part):
    """A duration that is drawn anew every time: a draw of ``law`` times ``mean``.

    Attributes:
        law: a law of mean 1.
        mean: mean emulated time.
    """

    law: Law = Law("uniform", 0.5, 1.5)
    mean: PositiveDuration


def _form(value: Any) -> str:
    """Return the form of a speed, so that errors mention only that form."""
    if isinstance(value, dict):
        return "StepTime" if {"base", "each"} & value.keys() else "RandomDuration"
    return type(value).__name__ if isinstance(value, StepTime | RandomDuration) else "Duration"


Speed = Annotated[
    Annotated[PositiveDuration, Tag("Duration")]
    | Annotated[RandomDuration, Tag("RandomDuration")]
    | Annotated[StepTime, Tag("StepTime")],
    Discriminator(_form),
]
"""The emulated time of a training step."""


MILLION = 1_000_000

Steps = tuple[Duration | None, ...]


class CodecTimes(Part):
    """Emulated time of each step of coding, for every million parameters of the model.

    What is not given takes no time.

    Attributes:
        select: choosing the largest entries.
        extract: drawing the others, and taking the values that are sent.
        merge: putting entries that have come where they belong.
        add: taking in a whole vector.
        quantise: bringing a vector into levels, and what the sender does to follow it.
        dequantise: making a vector of levels.
    """

    select: PositiveDuration | None = None
    extract: PositiveDuration | None = None
    merge: PositiveDuration | None = None
    add: PositiveDuration | None = None
    quantise: PositiveDuration | None = None
    dequantise: PositiveDuration | None = None

    def send_seconds(self, kind: type[Payload], size: int, *, selected: bool) -> float:
        """Return the time to create a payload from a vector of ``size`` entries.

        Args:
            kind: type of the payload.
            size: N.
            selected: whether its largest entries were chosen for it.
        """
        steps: dict[type[Payload], Steps] = {
            Keyed: (self.extract, self.select if selected else None),
            Sparse: (self.extract, self.select),
            Quantized: (self.quantise,),
        }
        return _seconds(steps.get(kind, ()), size)

    def take_seconds(self, kind: type[Payload], size: int) -> float:
        """Return the time to apply a payload to a vector of ``size`` entries."""
        steps: dict[type[Payload], Steps] = {
            Dense: (self.add,),
            Keyed: (self.merge,),
            Sparse: (self.merge,),
            Quantized: (self.dequantise, self.add),
        }
        return _seconds(steps.get(kind, ()), size)


class Codec(Part):
    """How long coding takes; a simulation's virtual clock adds it.

    Attributes:
        worker: on a worker's device.
        ps: at the parameter server, for each push and, once a round, for the reply.
    """

    worker: CodecTimes = CodecTimes()
    ps: CodecTimes = CodecTimes()


def _seconds(steps: Steps, size: int) -> float:
    return sum(float(step) for step in steps if step is not None) * size / MILLION
