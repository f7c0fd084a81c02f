"""Durations that a scenario gives as a law and a mean."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from testbed.scenario.fields import PositiveDuration
from testbed.values.laws import Law
from testbed.values.units import Duration

LEAST_INTERVAL = Duration(0.001)
"""Between two evaluations, which take no emulated time."""


class RandomDuration(BaseModel):
    """A duration that is drawn anew every time: a draw of ``law`` times ``mean``.

    Attributes:
        law: a law of mean 1.
        mean: mean emulated time.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    law: Law = Law("uniform", 0.5, 1.5)
    mean: PositiveDuration
