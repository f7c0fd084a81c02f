"""What a scenario may say of the search for the commit rate."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from testbed.algorithms.base import AlgorithmConfig
from testbed.algorithms.parts.commit_rate import CommitRateSearch
from testbed.algorithms.parts.options import CommitRate, Loss, PositiveDuration
from testbed.errors import Unfit
from testbed.values.units import Duration


class SearchOptions(AlgorithmConfig):
    """What a scenario may say of the search.

    Attributes:
        check_period: Γ, and the length of a trial.
        epoch: from the beginning of a search to that of the next; whole check periods of it count.
        commit_rate: d, instead of a search; may be below 1.
        target_loss: L*; a search ends there, and rewards are for coming to it, or 5 % down from
            where the search began. Without it they are for half of the loss then.
        reevaluate: whether a better rate is tried again before the next.
        search_from: the rate that a search begins with: 1, or what the last search has found.
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
            expected = f"two check periods or more, {Duration(2 * self.check_period)}: two trials"
            raise Unfit(f"an epoch of {self.epoch}", expected)
        return self

    def search(self) -> CommitRateSearch:
        """The search, at its beginning."""
        return CommitRateSearch(
            float(self.check_period),
            periods=int(self.epoch / self.check_period + 1e-9),
            target=self.target_loss,
            reevaluate=self.reevaluate,
            from_last=self.search_from == "last",
            fixed=self.commit_rate,
        )
