"""What a worker's loop asks of its driver, and what it is sent.

A role performs actions over gRPC in real seconds, a simulation on a virtual clock in modelled
seconds:

    yields                      is sent
    Pull()                      Arrived(now, reply, standing)
    Take(count)                 Taken(now, samples); empty after a long wait without samples
    Step(samples, draw)         Computed(now, gradient, left)
    Work(seconds)               Passed(now, left)
    Think(seconds)              Passed(now)
    Push(sequence, update)      Arrived(now, reply, standing)
    Evaluate(draw)              Found(now, accuracy)

A step that ``wakes`` interrupts is sent its gradient early, together with the remaining seconds;
``Work`` waits for these after the half has been woken.

A reply of None ends the loop. An outcome of the wrong type is an error of the driver.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from math import nan

from testbed.algorithms.base import Reply, Samples, Update
from testbed.algorithms.frame.effects import NO_STANDING, StandingOrders
from testbed.payloads import Vector


@dataclass(frozen=True)
class Pull:
    """Fetch the model without pushing."""


@dataclass(frozen=True)
class Take:
    """Take this many samples from the source, which may take time."""

    count: int


@dataclass(frozen=True, eq=False)
class Step:
    """Compute the gradient of the mean loss of these samples at the worker's parameters.

    Attributes:
        draw: the seed of all randomness in the step: the data set's transform and the user's own
            model. 0 if there is none.
    """

    samples: Samples
    draw: int = 0


@dataclass(frozen=True)
class Work:
    """Wait for the rest of an interrupted step, in emulated seconds."""

    seconds: float


@dataclass(frozen=True)
class Think:
    """Wait between computing and pushing, in emulated seconds (AdaComp's added waiting time)."""

    seconds: float


@dataclass(frozen=True, eq=False)
class Push:
    """Send an update and wait for the reply. Pushes are numbered from 1.

    Attributes:
        saturated: how many values the encoding clipped to its range.
    """

    sequence: int
    update: Update
    saturated: int = 0


@dataclass(frozen=True)
class Evaluate:
    """Measure the worker's model on the samples that it holds out.

    Attributes:
        draw: the seed of all randomness, as of a step.
    """

    draw: int = 0


Action = Evaluate | Pull | Take | Step | Work | Think | Push


@dataclass(frozen=True, eq=False)
class Arrived:
    """A reply arrived at emulated time ``now``. ``reply`` is None if training has ended."""

    now: float
    reply: Reply | None
    standing: StandingOrders = NO_STANDING


@dataclass(frozen=True, eq=False)
class Taken:
    """The samples of a step are available, at emulated time ``now``."""

    now: float
    samples: Samples


@dataclass(frozen=True, eq=False)
class Computed:
    """A gradient, float32 (N,), lent until the next Step, at emulated time ``now``.

    Attributes:
        left: remaining seconds of a step that was interrupted.
        loss: mean loss of the samples; NaN if unknown.
    """

    now: float
    gradient: Vector
    left: float = 0.0
    loss: float = nan


@dataclass(frozen=True)
class Passed:
    """The requested time has passed, except for ``left``; it is ``now``."""

    now: float
    left: float = 0.0


@dataclass(frozen=True)
class Found:
    """The accuracy on the samples that the worker holds out, at emulated time ``now``."""

    now: float
    accuracy: float


Outcome = Arrived | Found | Taken | Computed | Passed
Loop = Generator[Action, Outcome, None]
