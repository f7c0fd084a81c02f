"""Durations that a scenario gives as a law and a mean."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Discriminator, Tag

from testbed.values.fields import Part, PositiveDuration
from testbed.values.laws import Law
from testbed.values.units import Duration

LEAST_INTERVAL = Duration(0.001)
"""Between two evaluations, which take no emulated time."""


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
    """Which of its forms a speed has, so that errors speak of that one alone."""
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
