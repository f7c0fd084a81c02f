"""When a round begins and ends, and what becomes of late updates.

More workers than needed may be chosen, of which the first are waited for, up to a deadline:
K. Bonawitz et al., "Towards federated learning at scale: system design", MLSys 2019. A worker
cannot be interrupted: its update arrives late, in a later round.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from testbed.algorithms.base import Update, expect
from testbed.algorithms.parts.options import Count, PositiveDuration
from testbed.errors import InvalidValue
from testbed.payloads import Dense
from testbed.values.fields import NonNegative, StrictModel


class RoundRules(StrictModel):
    """Rules of rounds; by default, a round ends when all its workers have pushed or left.

    Attributes:
        over_selection: how many workers to choose, as a multiple of those needed; the round ends
            once as many as needed have pushed.
        deadline: emulated time from a round's first reply to its end. If no update has arrived by
            then, the round is extended, and further workers that wait are chosen.
        min_available: number of connected workers that must be waiting for a round to begin.
        late: whether to drop an update that arrives after its round, or to damp it: to add it to
            the present round, multiplied by (1 + τ)^-`damping`, if τ rounds have ended meanwhile.
        damping: exponent for late updates; 0 to add them unchanged.
        max_staleness: largest τ of a damped update; those above are dropped; None for no limit.
    """

    over_selection: float = Field(default=1.0, ge=1.0, le=1e6)
    deadline: PositiveDuration | None = None
    min_available: Count = 1
    late: Literal["drop", "damp"] = "drop"
    damping: NonNegative = 0.5
    max_staleness: Count | None = None

    @model_validator(mode="after")
    def _consistent(self) -> RoundRules:
        given = self.model_fields_set & {"damping", "max_staleness"}
        if self.late == "drop" and given:
            differs = [one for one in sorted(given) if getattr(self, one) != _default(one)]
            if differs:
                raise InvalidValue(f"{differs[0]} of updates that are dropped", "`late: damp`")
        if self.late == "damp" and self.over_selection == 1 and self.deadline is None:
            found = "late updates, which these rounds do not have"
            raise InvalidValue(found, "a `deadline`, or an `over_selection` above 1")
        return self

    def chosen(self, needed: int) -> int:
        """Return how many workers to choose if ``needed`` updates are needed."""
        return ceil(self.over_selection * needed - 1e-9)

    def scale(self, rounds: int) -> float:
        """Return the factor of an update that is ``rounds`` late; 0 if it is dropped."""
        if not rounds:
            return 1.0
        if self.late == "drop" or (self.max_staleness and rounds > self.max_staleness):
            return 0.0
        return float((1 + rounds) ** -self.damping)


def scaled(update: Update, factor: float) -> Update:
    """Return a late update with its U multiplied by the factor; without U if that is 0."""
    values = expect(Dense, update.payload).values if factor else np.zeros(0, np.float32)
    return replace(update, payload=Dense(np.float32(factor) * values))


def _default(name: str) -> object:
    return RoundRules.model_fields[name].default
