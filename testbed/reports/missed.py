"""Evaluations that were due and did not take place: the evaluator was still at the one before."""

from __future__ import annotations

from math import ceil, inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from testbed.scenario.schema import Scenario


def missed_evaluations(evaluations: pd.DataFrame, scenario: Scenario) -> int:
    """How many multiples of ``evaluate.every`` before the end have no evaluation of their own.

    A mean of ten evaluations in a row reaches back further by as many as are missing in between.
    A training that ends a little behind its last multiple, by a round or by milliseconds, has its
    last evaluation there.
    """
    every, stop = scenario.evaluate.every, scenario.stop
    assert every is not None, "a scenario that was read has one"
    by_version = isinstance(every, int)
    reached = evaluations["version" if by_version else "time_seconds"]
    if reached.empty:
        return 0
    limit = stop.updates if by_version else stop.time
    end = min(float(reached.max()), inf if limit is None else limit)
    due = ceil(end / every) - 1
    done = set((reached[~evaluations["final"]] // every).astype(int))
    return due - len(done & set(range(1, due + 1)))
