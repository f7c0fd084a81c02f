"""Workers by what the server saw of their connections.

    availability of k = share of the rounds at whose beginning k was connected
                        x (1 + updates of k that arrived in time) / (1 + rounds k was chosen for)

`prefer: most` avoids workers that are likely to be lost during the round. `prefer: least` takes a
worker while it is there, as REFL does (A. M. Abdelmoniem et al., "REFL: resource-efficient
federated learning", EuroSys 2023), which predicts the availability; here it is that of the past.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from numpy.random import Generator

from testbed.algorithms.selection.base import History, SelectionConfig, SelectionState, highest


class ByAvailability(SelectionConfig):
    """Options of a selection by availability.

    Attributes:
        prefer: whether to choose the workers with the most or the least availability.
    """

    name: Literal["availability"]
    prefer: Literal["most", "least"] = "most"

    def choose(
        self,
        candidates: Sequence[int],
        count: int,
        *,
        history: History,
        state: SelectionState,
        rng: Generator,
    ) -> Sequence[int]:
        """Choose by availability; ties are broken at random."""
        sign = 1 if self.prefer == "most" else -1
        found = {worker: sign * _availability(worker, history) for worker in candidates}
        return highest(found, count, rng)


def _availability(worker: int, history: History) -> float:
    connected = history.connected.get(worker, 0) / max(1, history.round)
    delivered = 1 + history.delivered.get(worker, 0)
    return connected * delivered / (1 + history.chosen.get(worker, 0))
