"""Whether model, stop rule and faults fit what a data set has to predict; what is a substitute."""

from __future__ import annotations

from collections.abc import Iterator

from testbed.faults.base import TimedFault
from testbed.scenario.document import Keys
from testbed.scenario.schema import Scenario


def substitutes(scenario: Scenario) -> tuple[str, ...]:
    """What of a scenario takes the place of what cannot be had, each in words."""
    return tuple(one.substitute for one in (scenario.model, scenario.dataset) if one.substitute)


def ill_fitting(scenario: Scenario, classes: int | None) -> Iterator[tuple[Keys, str, str]]:
    """What does not fit the targets of the data set: the path, what was found, what was expected.

    Args:
        scenario: is valid but for that.
        classes: how many labels there are, 0 for numbers; None if that is not known yet.
    """
    name, predicts = scenario.model.name, scenario.model.predicts
    targets = predicts if classes is None else "labels" if classes else "numbers"
    if predicts is not None and targets != predicts:
        found = f"{name}, which predicts {predicts}"
        yield ("model",), found, f"a model of {targets}: {scenario.dataset.name} has {targets}"
    if targets != "numbers":
        return
    expected = f"a loss, a time or a count: {name} predicts numbers, which have no accuracy"
    if scenario.stop.accuracy is not None:
        yield ("stop", "accuracy"), f"{scenario.stop.accuracy:g}", expected
    for place, fault in enumerate(scenario.faults):
        if isinstance(fault, TimedFault) and fault.at.accuracy is not None:
            expected = f"a time or a version: {name} predicts numbers, which have no accuracy"
            yield ("faults", place), f"an accuracy of {fault.at.accuracy:g}", expected
