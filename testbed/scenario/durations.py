"""Durations of steps, waits and coding in a scenario: distributions, means and sums."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Discriminator, Tag

from testbed.payloads import Dense, Keyed, Payload, Quantized, Signs, Sparse
from testbed.values.fields import PositiveDuration, StrictModel
from testbed.values.laws import Law
from testbed.values.units import Duration

LEAST_INTERVAL = Duration(0.001)
"""Minimum between two evaluations, which take no emulated time."""


class StepTime(StrictModel):
    """The time of a training step that depends on its batch: ``base + each * samples``.

    Attributes:
        base: emulated time of a step, without its samples.
        each: emulated time per sample of its batch.
    """

    base: PositiveDuration
    each: PositiveDuration


class RandomDuration(StrictModel):
    """A duration that is drawn for each use: a draw of ``law`` times ``mean``.

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


class CodecTimes(StrictModel):
    """Emulated time of each step of encoding and decoding, per million parameters of the model.

    Omitted steps take no time.

    Attributes:
        select: select the largest entries.
        extract: draw the other entries, and extract the values to send.
        merge: merge received entries into the vector.
        add: add a whole vector.
        quantise: quantise a vector, and apply the quantised values at the sender.
        dequantise: dequantise a vector.
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
            Signs: (self.quantise,),
        }
        return _seconds(steps.get(kind, ()), size)

    def take_seconds(self, kind: type[Payload], size: int) -> float:
        """Return the time to apply a payload to a vector of ``size`` entries."""
        steps: dict[type[Payload], Steps] = {
            Dense: (self.add,),
            Keyed: (self.merge,),
            Sparse: (self.merge,),
            Quantized: (self.dequantise, self.add),
            Signs: (self.dequantise, self.add),
        }
        return _seconds(steps.get(kind, ()), size)


class Codec(StrictModel):
    """Times of encoding and decoding; the virtual clock of a simulation adds them.

    Attributes:
        worker: on each worker's device.
        ps: at the parameter server, per push, and once per round for the reply.
    """

    worker: CodecTimes = CodecTimes()
    ps: CodecTimes = CodecTimes()


def _seconds(steps: Steps, size: int) -> float:
    return sum(float(step) for step in steps if step is not None) * size / MILLION
