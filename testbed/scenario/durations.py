"""Durations of steps, waits and coding in a scenario: distributions, means and sums."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Discriminator, Tag

from testbed.payloads import Dense, Keyed, Payload, Quantized, Signs, Sparse
from testbed.scenario.per_device import Table, is_law, quantities
from testbed.values.fields import Count, PositiveDuration, PositiveNumber, Share, StrictModel, Word
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


class ModelCost(StrictModel):
    """What a training step of the scenario's model computes and moves.

    Attributes:
        flops: floating-point operations per sample, forward and backward.
        parameters: number of parameters.
    """

    flops: PositiveNumber
    parameters: Count


class ProfileTime(StrictModel):
    """The time of a training step, from what a device computes and what the model costs.

    A step takes the model's operations per sample divided by the device's speed, times its samples,
    plus three passes over the parameters at the speed of its memory, if that is known.

    Attributes:
        profile: a shipped device, or a file such as `./mine.yaml`, which `testbed calibrate` wrote.
        efficiency: share of the device's speed that training reaches.
        each: a law of mean 1, drawn once for each device, that multiplies its times.
        gflops: speed of the device; filled in from the profile.
        memory_gb_per_second: speed of its memory; filled in from the profile.
        cost: cost of the model; counted before a run.
    """

    profile: Word
    efficiency: Share = 1.0
    each: Law | None = None
    gflops: PositiveNumber | None = None
    memory_gb_per_second: PositiveNumber | None = None
    cost: ModelCost | None = None

    def pace(self, factor: float = 1.0) -> StepPace | None:
        """Return the step times of a device ``factor`` times slower; None if not yet counted."""
        if self.gflops is None or self.cost is None:
            return None
        sample = self.cost.flops / (self.gflops * 1e9 * self.efficiency)
        moved = PASSES * BYTES_PER_PARAMETER * self.cost.parameters
        memory = self.memory_gb_per_second
        base = 0.0 if memory is None else moved / (memory * 1e9)
        return StepPace(factor * base, factor * sample)


PASSES = 3
"""Passes over the parameters in a step: read forward and backward, and the gradient written."""

BYTES_PER_PARAMETER = 4

PER_DEVICE = (DeviceDuration, TableDuration, ProfileTime)
"""Speeds that differ between the devices of a class."""


def _form(value: Any) -> str:
    """Return the form of a speed, so that errors mention only that form."""
    if isinstance(value, dict):
        if "table" in value or "profile" in value:
            return "TableDuration" if "table" in value else "ProfileTime"
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
    | Annotated[TableDuration, Tag("TableDuration")]
    | Annotated[ProfileTime, Tag("ProfileTime")],
    Discriminator(_form),
]
"""The emulated time of a training step."""


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
        case ProfileTime():
            return speed.pace()
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
            selected: whether its largest entries were chosen for it, even if all are sent.
        """
        select = self.select if selected else None
        steps: dict[type[Payload], Steps] = {
            Dense: (select,),
            Keyed: (self.extract, select),
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
