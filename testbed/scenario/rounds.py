"""Checks of the rounds of federated algorithms against the number of workers."""

from __future__ import annotations

from collections.abc import Iterator

from testbed.algorithms.parts.federated import FederatedRounds
from testbed.scenario.document import Finding
from testbed.scenario.schema import Scenario


def check_rounds(scenario: Scenario) -> Iterator[Finding]:
    """Check that rounds can begin, and that over-selection has workers to choose from."""
    algorithm, count = scenario.algorithm, scenario.workers.count
    if not isinstance(algorithm, FederatedRounds):
        return
    rules = algorithm.rounds
    if rules.min_available > count:
        found, expected = f"{rules.min_available:,}", f"at most {count:,}: the number of workers"
        yield ("algorithm", "rounds", "min_available"), found, expected
    needed = max(1, round(algorithm.fraction * count))
    if rules.over_selection > 1 and needed == count:
        found = f"{rules.over_selection:g} with rounds of all {count:,} workers"
        expected = "1, or an algorithm.fraction that leaves some out"
        yield ("algorithm", "rounds", "over_selection"), found, expected
