"""Evaluations that were due and did not take place: the evaluator was still at the one before."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from testbed.scenario.schema import Scenario


def missed_evaluations(evaluations: pd.DataFrame, scenario: Scenario) -> int:
    """How many multiples of ``evaluate.every`` before the end have no evaluation of their own.

    A mean of ten evaluations in a row reaches back further by as many as are missing in between.
    """
    every = scenario.evaluate.every
    assert every is not None, "a scenario that was read has one"
    reached = evaluations["version" if isinstance(every, int) else "time_seconds"]
    if reached.empty:
        return 0
    due = ceil(float(reached.max()) / every) - 1
    done = set((reached[~evaluations["final"]] // every).astype(int))
    return due - len(done & set(range(1, due + 1)))
