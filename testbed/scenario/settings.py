"""Parts of a scenario: its end, evaluations and checkpoints, who computes, and who is present."""

from __future__ import annotations

from math import ceil
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from testbed.errors import InvalidValue
from testbed.models.metrics import DEFAULTS, EvaluationMetric
from testbed.scenario.direction import Recording
from testbed.scenario.durations import LEAST_INTERVAL, Period
from testbed.values.family import Named
from testbed.values.fields import (
    AtOnce,
    Count,
    FiniteNumber,
    Gpus,
    Key,
    PositiveDuration,
    PositiveNumber,
    Share,
    StrictModel,
)
from testbed.values.units import Duration


class Stop(StrictModel):
    """When training ends: at the first criterion that is met. At least one is required.

    Attributes:
        updates: number of updates applied to the model. Updates that are applied together may
            exceed it.
        steps: number of training steps, of all workers, in the updates applied to the model.
        time: emulated time since the start of training.
        accuracy: top-1 accuracy that an evaluation during training reaches or exceeds.
        loss: loss that an evaluation during training reaches or falls below.
        metrics: values of metrics, by name, that an evaluation during training reaches: exceeds, or
            falls below if lower values are better.
    """

    updates: Count | None = None
    steps: Count | None = None
    time: PositiveDuration | None = None
    accuracy: Share | None = None
    loss: PositiveNumber | None = None
    metrics: dict[Key, FiniteNumber] = Field(default={})

    @model_validator(mode="after")
    def _something(self) -> Stop:
        if all(rule in (None, {}) for _, rule in self):
            expected = "at least one of updates, steps, time, accuracy, loss and metrics"
            raise InvalidValue("no criterion", expected)
        return self

    def progress(self, updates: int, emulated: float) -> float | None:
        """Return the progress in [0, 1] towards the nearer of `updates` and `time`, if any."""
        shares = []
        if self.updates is not None:
            shares.append(updates / self.updates)
        if self.time is not None:
            shares.append(emulated / self.time)
        return min(1.0, max(shares)) if shares else None

    def seconds_left(
        self, updates: int, emulated: float, *, updates_per_second: float, pace: float
    ) -> float | None:
        """Return the real seconds until the first of `updates` and `time`; None if unknown.

        Args:
            updates: number of updates so far.
            emulated: emulated seconds so far.
            updates_per_second: in real seconds.
            pace: emulated seconds per real second.
        """
        left = []
        if self.updates is not None and updates_per_second > 0:
            left.append((self.updates - updates) / updates_per_second)
        if self.time is not None and pace > 0:
            left.append((self.time - emulated) / pace)
        return max(0.0, min(left)) if left else None

    def twentieth(self, local_steps: int) -> int | Duration:
        """Return the evaluation interval for a curve of at least twenty points.

        Args:
            local_steps: training steps per update.
        """
        steps = None if self.steps is None else self.steps // local_steps
        counts = [count for count in (self.updates, steps) if count is not None]
        if not counts and self.time is not None:
            return Duration(max(self.time / 20, LEAST_INTERVAL))
        return max(1, min([1000, *(count // 20 for count in counts)])) if counts else 100


class Checkpoint(StrictModel):
    """Saves the state of training, to resume it after the parameter server was killed.

    Attributes:
        every: checkpoint interval, in updates or in emulated time.
    """

    every: Count | PositiveDuration


class Evaluate(StrictModel):
    """Evaluation of the model; after training, the model is also evaluated on all test images.

    Attributes:
        every: evaluation interval, in updates or in emulated time. By default a twentieth of the
            updates, steps or time in `stop`, and at most 1,000 updates.
        images: number of test images used by an evaluation during training; always the same images.
        metrics: values of the outputs that an evaluation computes beside the loss. The first one
            decides which model is saved as the best.
        gpus: number of NVIDIA GPUs of the evaluator, or its share of one. By default none.
        timeout: maximum real time of one evaluation; if it takes longer, the run fails.
    """

    every: Count | PositiveDuration | None = None
    images: Count = 2000
    metrics: Annotated[tuple[EvaluationMetric, ...], Field(strict=False)] = DEFAULTS
    gpus: Gpus = 0
    timeout: PositiveDuration = Duration(600)


MOST_SAMPLES = 16_384
"""Maximum number of samples that a request for a gradient names."""


class Own(StrictModel):
    """Every worker computes its own gradients, in its own node."""

    name: Literal["own"]


class Shared(StrictModel):
    """One node computes the gradients of all workers.

    Attributes:
        processes: number of its processes; by default one per GPU, or per CPU of the host.
        gpus: number of NVIDIA GPUs of the node, or its share of one; by default none. It has one
            process for each.
        vmap: number of gradients that a process computes at once, by ``torch.func.vmap``, if as
            many workers wait: for small networks on a GPU. On a CPU it is slower than one by one.
    """

    name: Literal["shared"]
    processes: Count | None = None
    gpus: Gpus = 0
    vmap: AtOnce = 1

    @model_validator(mode="after")
    def _one_process_a_gpu(self) -> Shared:
        if self.gpus and self.processes not in (None, ceil(self.gpus)):
            found = f"processes {self.processes:,} with gpus {self.gpus:g}"
            raise InvalidValue(found, "no `processes`: there is one per GPU")
        return self

    @property
    def process_count(self) -> int:
        """The number of processes on this host."""
        from testbed.host.requirements import usable_cpus  # not in every node's memory

        return self.processes or ceil(self.gpus) or usable_cpus()


class Auto(StrictModel):
    """`shared` if the scenario permits it and has ten or more workers per CPU, else `own`."""

    name: Literal["auto"]


ComputeSettings = Annotated[Own | Shared | Auto, Named()]


class Presence(StrictModel):
    """Periods in turn in which a worker is present and absent; training starts anywhere in them.

    Attributes:
        present: how long a worker is present: a duration, or a law for each period or each device.
        absent: how long it is absent.
    """

    present: Period
    absent: Period


def _form(value: Any) -> str:
    """Return the form of an availability, so that errors mention only that form."""
    drawn = isinstance(value, dict) and {"present", "absent"} & value.keys()
    return "Presence" if drawn or isinstance(value, Presence) else "Recording"


Attendance = Annotated[
    Annotated[Recording, Tag("Recording")] | Annotated[Presence, Tag("Presence")],
    Discriminator(_form),
]
"""When workers are present."""
