"""Missed evaluations: those skipped because the evaluator was still busy with the one before."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from testbed.scenario.schema import Scenario


def missed_evaluations(evaluations: pd.DataFrame, updates: pd.DataFrame, scenario: Scenario) -> int:
    """Count the multiples of ``evaluate.every`` before the end that have no evaluation.

    A mean of ten evaluations in a row spans a longer time by the number of those missed in between.
    If a training ends slightly after its last multiple, by a round or by milliseconds, its final
    evaluation counts for it. Multiples that a round reaches at the same time share one evaluation.
    """
    every, stop = scenario.evaluate.every, scenario.stop
    assert every is not None, "every valid scenario has one"
    by_version = isinstance(every, int)
    reached = evaluations["version" if by_version else "time_seconds"]
    if reached.empty:
        return 0
    limit, step = stop.updates if by_version else stop.time, _exact(every)
    end = min(float(reached.max()), inf if limit is None else limit)
    due = range(1, ceil(_exact(end) / step))
    done = {_exact(one) // step for one in reached[~evaluations["final"]]}
    if not isinstance(every, int):
        return len(set(due) - done)
    moments = updates["time_seconds"].tolist()
    last = {moment: version for version, moment in enumerate(moments, 1)}  # applied at once
    shared = {number: number * every for number in due}
    shared |= {n: last[moments[v - 1]] for n, v in shared.items() if v <= len(moments)}
    return sum(
        version < end and version // every not in done
        for number, version in shared.items()
        if number not in done
    )


def _exact(value: float) -> Fraction:
    """Return a number rounded to a millionth, as a multiple of the interval is one exactly."""
    return Fraction(f"{value:.6f}")
