"""Durations of steps, waits and coding in a scenario: distributions, means and sums."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Discriminator, Tag

from testbed.payloads import Dense, Keyed, Payload, Quantized, Signs, Sparse
from testbed.scenario.per_device import Table, is_law, quantities
from testbed.values.fields import PositiveDuration, StrictModel
from testbed.values.laws import Law
from testbed.values.units import Duration

LEAST_INTERVAL = Duration(0.001)
"""Minimum between two evaluations, which take no emulated time."""


CONSTANT = Law("constant")


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


class DeviceDuration(StrictModel):
    """A duration whose mean is drawn once for each device: a draw of ``each`` times ``mean``.

    Attributes:
        each: a law of mean 1, drawn once for each device.
        mean: mean of the devices, emulated time.
        law: a law of mean 1, drawn for each use in addition; by default every use of a device takes
            the same time.
    """

    each: Law
    mean: PositiveDuration
    law: Law = CONSTANT


class TableDuration(StrictModel):
    """A duration whose mean is in a table with a row for each device.

    Attributes:
        table: file and column.
        law: a law of mean 1, drawn for each use in addition; by default every use of a device takes
            the same time.
    """

    table: Table
    law: Law = CONSTANT


PER_DEVICE = (DeviceDuration, TableDuration)
"""Speeds that differ between the devices of a class."""


def _form(value: Any) -> str:
    """Return the form of a speed, so that errors mention only that form."""
    if isinstance(value, dict):
        if "table" in value:
            return "TableDuration"
        if "base" not in value and is_law(value.get("each")):
            return "DeviceDuration"
        return "StepTime" if {"base", "each"} & value.keys() else "RandomDuration"
    return type(value).__name__ if isinstance(value, StrictModel) else "Duration"


Period = Annotated[
    Annotated[PositiveDuration, Tag("Duration")]
    | Annotated[RandomDuration, Tag("RandomDuration")]
    | Annotated[DeviceDuration, Tag("DeviceDuration")],
    Discriminator(_form),
]
"""How long a state of a device lasts."""

Speed = Annotated[
    Annotated[PositiveDuration, Tag("Duration")]
    | Annotated[RandomDuration, Tag("RandomDuration")]
    | Annotated[StepTime, Tag("StepTime")]
    | Annotated[DeviceDuration, Tag("DeviceDuration")]
    | Annotated[TableDuration, Tag("TableDuration")],
    Discriminator(_form),
]
"""The emulated time of a training step."""


class Presence(StrictModel):
    """Periods in turn in which a worker is present and absent; training starts anywhere in them.

    Attributes:
        present: how long a worker is present: a duration, or a law for each period or each device.
        absent: how long it is absent.
    """

    present: Period
    absent: Period


@dataclass(frozen=True)
class StepPace:
    """The time of a training step: ``base * draw of law + sample * samples``, emulated seconds."""

    base_seconds: float
    sample_seconds: float = 0.0
    law: Law = CONSTANT

    def mean(self, samples: float) -> float:
        """Return the mean time of a step with this many samples."""
        return self.base_seconds + self.sample_seconds * samples


def class_pace(speed: Any) -> StepPace | None:
    """Return the pace of a class, the mean of its devices; None without a speed."""
    match speed:
        case None:
            return None
        case StepTime(base=base, each=each):
            return StepPace(float(base), float(each))
        case RandomDuration(law=law, mean=mean) | DeviceDuration(law=law, mean=mean):
            return StepPace(float(mean), law=law)
        case TableDuration(table=table, law=law):
            found = quantities(Duration, table.values)
            return StepPace(sum(found) / len(found), law=law) if found else None
    return StepPace(float(speed))


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
