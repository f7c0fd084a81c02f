"""Checks of a scenario's metrics, and of what refers to them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from testbed.faults.base import TimedFault
from testbed.models.metrics import ACCURACY, DEFAULTS, unit_of
from testbed.models.metrics.clients import FORWARD, Clients, Evaluators
from testbed.models.metrics.custom import CustomMetric
from testbed.scenario.document import Finding, Keys
from testbed.scenario.schema import Scenario
from testbed.scenario.synonyms import nearest
from testbed.telemetry.entry import METRIC, STAMP
from testbed.telemetry.rows import EVALUATIONS
from testbed.values.units import Duration

MOST_NAMES = 1000
"""Maximum number of a metric's values."""

TAKEN = {"accuracy", *EVALUATIONS, *STAMP, "samples", "steps"}
"""Names of other columns of the evaluations, and of other fields of their events."""


def check_metrics(scenario: Scenario) -> Iterator[Finding]:
    """Check that the names of metrics are distinct, and that what refers to one names it."""
    seen: set[str] = set()
    for place, metric in enumerate(scenario.evaluate.metrics):
        path: Keys = ("evaluate", "metrics", place)
        name = metric.names(0)[0] if len(metric.names(0)) == 1 else metric.name
        if name in seen:
            yield path, f"{name} again", "each metric once"
        seen.add(name)
        if isinstance(metric, Clients):
            yield from _check_clients(scenario, metric, path)
        if isinstance(metric, CustomMetric) and (
            name in TAKEN or unit_of(name) or not re.fullmatch(METRIC, name)
        ):
            expected = "a class with another name, of at most 60 letters: its name is the metric's"
            yield (*path, "class"), name, expected
    for path, name in referred(scenario):
        if unknown := unknown_metric(scenario, name):
            yield path, f"{name}, which is not evaluated", *unknown
    yield from _check_measured(scenario)


def clients_by(who: Evaluators, scenario: Scenario) -> Clients | None:
    """Return the metric `clients` if these evaluate it; else None."""
    metrics = scenario.evaluate.metrics
    return next((one for one in metrics if isinstance(one, Clients) and one.by == who), None)


def _check_clients(scenario: Scenario, metric: Clients, path: Keys) -> Iterator[Finding]:
    """Check that workers hold samples out, and that those that evaluate can."""
    if not scenario.dataset.held_out:
        expected = "`dataset.held_out`, such as 0.2: the share of each worker's own samples"
        yield path, "clients, without samples that workers hold out", expected
    if metric.by == "evaluator":
        if metric.cost != FORWARD:
            yield (*path, "cost"), f"{metric.cost:g}", "none: the evaluator takes no emulated time"
        return
    algorithm = scenario.algorithm
    if not algorithm.WORKERS_EVALUATE:
        expected = "evaluator, or an algorithm with rounds of local training, such as fedavg"
        yield (*path, "by"), f"workers, with {algorithm.name}", expected
    if metric is scenario.evaluate.metrics[0]:
        expected = "another metric first: the first one decides which model is saved as the best"
        yield path, "clients by workers, who evaluate earlier models than the evaluator", expected


def _check_measured(scenario: Scenario) -> Iterator[Finding]:
    """Check that a stop rule's measurement takes place before the run ends otherwise."""
    stop, every = scenario.stop, scenario.evaluate.every
    end = stop.time if isinstance(every, Duration) else stop.updates
    if every is None or end is None or every < end:
        return
    goals: dict[Keys, float | None] = {("accuracy",): stop.accuracy, ("loss",): stop.loss}
    goals |= {("metrics", name): goal for name, goal in stop.metrics.items()}
    for path, wanted in goals.items():
        if wanted is not None:
            unit = "" if isinstance(every, Duration) else " updates"
            found = f"{wanted:g} with an evaluation every {every}{unit}"
            expected = f"a smaller evaluate.every: training ends at {end}{unit}"
            yield ("stop", *path), found, expected


def referred(scenario: Scenario) -> Iterator[tuple[Keys, str]]:
    """Yield where a scenario refers to a metric, and the metric's name."""
    if scenario.stop.accuracy is not None:
        yield ("stop", "accuracy"), ACCURACY
    for name in scenario.stop.metrics:
        yield ("stop", "metrics", name), name
    for place, fault in enumerate(scenario.faults):
        if isinstance(fault, TimedFault):
            for name in fault.at.values.keys() - {"loss"}:
                yield ("faults", place), ACCURACY if name == "accuracy" else name


def fault_metrics(scenario: Scenario) -> set[str]:
    """Return the names of metrics whose values begin faults."""
    timed = [fault for fault in scenario.faults if isinstance(fault, TimedFault)]
    return {name for fault in timed for name in fault.at.metrics or {}}


def unknown_metric(
    scenario: Scenario, name: str, classes: int | None = None
) -> tuple[str, str] | None:
    """Return what is expected in place of a metric's name, and a hint; None if it is evaluated.

    The number of classes is only needed for the user's own data sets.
    """
    metrics, images = scenario.evaluate.metrics, scenario.dataset.images
    classes = classes if images is None else images[1]
    known = [*dict.fromkeys(known for one in metrics for known in one.names(classes or 0))]
    if name in known or (classes is None and any(one.has(name) for one in metrics)):
        return None
    shown = f"{', '.join(known[:20])}{' ...' if len(known) > 20 else ''}" or "none"
    return f"a metric of evaluate.metrics: {shown}; or {name} in addition to them", nearest(
        name, known
    )


def check_targets(
    scenario: Scenario, targets: str, classes: int | None
) -> Iterator[tuple[Keys, str, str]]:
    """Yield metrics that are not defined for the targets of the data set.

    The default has no values for numbers. Every token that counts is a label for them.
    """
    for place, metric in enumerate(scenario.evaluate.metrics):
        if (count := len(metric.names(classes or 0))) > MOST_NAMES:
            found = f"{metric.name} of {count:,} labels"
            expected = f"another metric: at most {MOST_NAMES:,} columns"
            yield ("evaluate", "metrics", place), found, expected
    prepared = scenario.dataset.images is None and classes is not None  # else checked before
    named = [(path, name) for path, name in referred(scenario) if name != ACCURACY]
    for path, name in named if prepared else ():
        if unknown := unknown_metric(scenario, name, classes):
            yield path, f"{name}, which is not evaluated", unknown[0]
    metrics, dataset = scenario.evaluate.metrics, scenario.dataset.name
    kinds = (None, "labels" if targets == "tokens" else targets)
    for place, metric in enumerate(metrics if metrics != DEFAULTS else ()):
        if metric.TARGETS not in kinds:
            expected = f"a metric of {targets}, the targets of {dataset}"
            yield ("evaluate", "metrics", place), f"{metric.name}, of {metric.TARGETS}", expected
    for path, name in named:
        having = [one for one in metrics if one.has(name)]
        if having and all(one.TARGETS not in kinds for one in having):
            expected = f"another criterion, such as `loss`: {dataset} has {targets}"
            yield path, name, expected
