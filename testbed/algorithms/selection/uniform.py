"""Every worker with the same chance, as in FedAvg."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from numpy.random import Generator

from testbed.algorithms.selection.base import History, SelectionConfig, SelectionState


class Uniform(SelectionConfig):
    """A uniform choice; no options."""

    name: Literal["uniform"] = "uniform"

    def choose(
        self,
        candidates: Sequence[int],
        count: int,
        *,
        history: History,
        state: SelectionState,
        rng: Generator,
    ) -> Sequence[int]:
        """Draw without replacement."""
        chosen: list[int] = rng.choice(candidates, count, replace=False).tolist()
        return chosen
