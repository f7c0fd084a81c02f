"""Rounds of local training: their options and rules, and a server that counts them.

More workers than needed may be chosen, of which the first are waited for, up to a deadline:
K. Bonawitz et al., "Towards federated learning at scale: system design", MLSys 2019. A worker
cannot be interrupted: its update arrives late, in a later round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import ClassVar, Literal, Self, TypeVar

import numpy as np
from pydantic import Field, model_validator

from testbed.algorithms.base import Applied, Reply, Update, expect
from testbed.algorithms.parts.local_training import LocalTraining
from testbed.algorithms.parts.options import Count, PositiveDuration, Share
from testbed.algorithms.parts.rounds import RoundServer
from testbed.algorithms.parts.schedule import CONSTANT
from testbed.algorithms.selection import CustomSelection, Selection, Uniform
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


class FederatedRounds(LocalTraining):
    """Options of algorithms that train whole epochs per round.

    Attributes:
        local_epochs: E, local epochs per round.
        fraction: C, the share of the workers per round.
        select: how the workers of a round are chosen.
        rounds: when a round begins and ends, and what becomes of late updates.
    """

    WORKERS_EVALUATE: ClassVar[bool] = True

    local_epochs: Count = 1
    fraction: Share = 1.0
    select: Selection = Field(default_factory=Uniform)
    rounds: RoundRules = Field(default_factory=RoundRules)

    def takes_losses(self) -> bool:
        """Whether the selection needs them."""
        return not isinstance(self.select, CustomSelection) and self.select.TAKES_LOSSES

    def loaded(self, folder: Path) -> Self:
        """Load the user's selection."""
        if not isinstance(self.select, CustomSelection):
            return self
        return self.model_copy(update={"select": self.select.load(folder)})


T = TypeVar("T", bound=LocalTraining)


class TrainingServer(RoundServer[T]):
    """Counts the rounds, for workers whose learning rate follows them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._rounds = 0

    def pull(self, worker: int, now: float) -> Reply:
        """Return the model; with the number of the round if a schedule follows it."""
        schedule = self.config.schedule
        by_rounds = schedule != CONSTANT and schedule.by == "rounds"
        note = {"round": float(self._rounds)} if by_rounds else {}
        return Reply(Dense(self.parameters), self.version, note=note)

    def _close(self, now: float) -> Sequence[Applied]:
        """Count the round, if it is complete."""
        applied = super()._close(now)
        self._rounds += bool(applied)
        return applied
