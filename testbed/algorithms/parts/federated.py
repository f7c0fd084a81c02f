"""Rounds of local training: their options, and a server that counts them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Self, TypeVar

from pydantic import Field

from testbed.algorithms.base import Applied, Reply
from testbed.algorithms.parts.local_training import LocalTraining
from testbed.algorithms.parts.options import Count, Share
from testbed.algorithms.parts.round_rules import RoundRules
from testbed.algorithms.parts.rounds import RoundServer
from testbed.algorithms.parts.schedule import CONSTANT
from testbed.algorithms.selection import CustomSelection, Selection, Uniform
from testbed.payloads import Dense


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
