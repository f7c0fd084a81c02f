"""Workers with a high loss: Power-of-Choice.

Y. J. Cho, J. Wang, G. Joshi, "Towards understanding biased client selection in federated learning",
AISTATS 2022: its variant rpow-d, which uses the losses of each worker's last round.

    d candidates, drawn in proportion to their samples; of these, the ones with the highest loss

Deviations: a worker that has sent no update has an infinite loss, and the mean number of samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from statistics import fmean
from typing import ClassVar, Literal

from numpy.random import Generator
from pydantic import Field

from testbed.algorithms.selection.base import (
    History,
    SelectionConfig,
    SelectionState,
    by_weight,
    highest,
)


class ByLoss(SelectionConfig):
    """Options of a selection by loss.

    Attributes:
        candidates: d, as a multiple of the number of workers to choose.
    """

    TAKES_LOSSES: ClassVar[bool] = True

    name: Literal["loss"]
    candidates: float = Field(default=2.0, ge=1.0, le=1e6)

    def choose(
        self,
        candidates: Sequence[int],
        count: int,
        *,
        history: History,
        state: SelectionState,
        rng: Generator,
    ) -> Sequence[int]:
        """Draw d candidates, and choose those with the highest loss."""
        usual = fmean(history.samples.values()) if history.samples else 1.0
        weights = {worker: history.samples.get(worker, usual) for worker in candidates}
        drawn = by_weight(weights, min(len(candidates), round(self.candidates * count)), rng)
        return highest({one: history.losses.get(one, inf) for one in drawn}, count, rng)
