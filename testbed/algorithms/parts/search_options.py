"""A scenario's options for the search for the commit rate."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from testbed.algorithms.base import AlgorithmConfig
from testbed.algorithms.parts.commit_rate import CommitRateSearch
from testbed.algorithms.parts.options import CommitRate, Loss, PositiveDuration
from testbed.errors import InvalidValue
from testbed.values.units import Duration


class SearchOptions(AlgorithmConfig):
    """A scenario's options for the search.

    Attributes:
        check_period: Γ, also the length of a trial.
        epoch: from the start of one search to the next; only whole check periods count.
        commit_rate: d, instead of a search; may be below 1.
        target_loss: L*; a search ends there, and the goal of rewards is L* or 5 % below the first
            loss of the search. Without it, the goal is half of the first loss.
        reevaluate: whether a better rate is tried again before the next.
        search_from: the rate that a search starts with: 1, or the result of the last search.
    """

    check_period: PositiveDuration = Duration(60)
    epoch: PositiveDuration = Duration(1200)
    commit_rate: CommitRate | None = None
    target_loss: Loss | None = None
    reevaluate: bool = False
    search_from: Literal["one", "last"] = "one"

    @model_validator(mode="after")
    def _room_for_two_trials(self) -> SearchOptions:
        if self.commit_rate is None and self.epoch < 2 * self.check_period:
            expected = f"at least two check periods, {Duration(2 * self.check_period)}: two trials"
            raise InvalidValue(f"an epoch of {self.epoch}", expected)
        return self

    def search(self) -> CommitRateSearch:
        """Create the search, at its start."""
        return CommitRateSearch(
            float(self.check_period),
            periods=int(self.epoch / self.check_period + 1e-9),
            target=self.target_loss,
            reevaluate=self.reevaluate,
            from_last=self.search_from == "last",
            fixed=self.commit_rate,
        )
