"""A measure of a run as studies, tables and comparisons write it: ``updates_to(0.97,10)``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf, isfinite, isinf, nan
from reprlib import repr as shortened
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

from testbed.errors import InvalidValue
from testbed.models.metrics import ACCURACY, higher_is_better, unit_of
from testbed.reports.measures import scheduled
from testbed.reports.registry import COSTS, MEASURES, UNITS, Argument, Definition, definition_of
from testbed.reports.table import NOTHING
from testbed.reports.workload_measures import OF_LOSS, SERIES, WORKLOAD_MEASURES
from testbed.reports.workload_record import WorkloadRecord
from testbed.scenario.workload import Workload
from testbed.telemetry.entry import METRIC
from testbed.values.text_value import TextValue

if TYPE_CHECKING:
    import pandas as pd

    from testbed.reports.frames import Run
    from testbed.reports.workload import WorkloadRun
    from testbed.scenario.schema import Scenario

_INTEGER = r"\s*[0-9]+\s*"
_NUMBER = r"\s*[0-9]*\.?[0-9]+\s*"
_NODE = r"\s*[a-z0-9][a-z0-9_-]*\s*"
_TEXT = {"accuracy": _NUMBER, "value": _NUMBER, "loss": _NUMBER, "first": _INTEGER}
_EXAMPLE = {"accuracy": "0.9", "loss": "0.5", "first": "1000"}


def _brackets(parameters: Sequence[Argument]) -> str:
    """Return the pattern of a measure's arguments."""
    if "node" in parameters:
        return rf"(?:\({_NODE}\))?"
    needed = ",".join(_TEXT[one] for one in parameters if one != "window")
    if "window" not in parameters:
        return rf"\({needed}\)" if needed else ""
    return rf"\({needed}(?:,{_INTEGER})?\)" if needed else rf"(?:\({_INTEGER}\))?"


def _pattern() -> str:
    forms: dict[str, list[str]] = {}
    for name, definition in {**WORKLOAD_MEASURES, **MEASURES}.items():
        forms.setdefault(_brackets(definition.parameters), []).append(name)
    metric = rf"_(?!loss\b){METRIC}"
    forms[""].append(f"final{metric}")
    forms[_brackets(("window",))] += [f"best{metric}", f"last{metric}"]
    forms[_brackets(("value", "window"))].append(f"(?:{'|'.join(COSTS)})_to{metric}")
    return "|".join(f"(?:{'|'.join(names)}){brackets}" for brackets, names in forms.items())


def _wanted() -> str:
    alone, examples = [], []
    for name, definition in {**MEASURES, **WORKLOAD_MEASURES}.items():
        first = next(iter(definition.parameters), "window")
        if first in ("window", "node"):
            alone.append(name)
        else:
            examples.append(f"{name}({_EXAMPLE[first]})")
    of_metric = "final_METRIC, best_METRIC(10), updates_to_METRIC(0.9,10)"
    return ", ".join((*alone, "best_accuracy(10)", *examples, "updates_to(0.9,10)", of_metric))


class Evaluated(Protocol):
    """A training's run with its evaluations."""

    @property
    def scenario(self) -> Scenario:
        """The resolved scenario."""

    @property
    def evaluations(self) -> pd.DataFrame:
        """A row per evaluation."""


@dataclass(frozen=True)
class Measure(TextValue):
    """A measure with its arguments.

    Attributes:
        name: one of MEASURES, or of a metric.
        accuracy: accuracy to reach, as a fraction.
        value: value of a metric to reach.
        window: number of evaluations in the moving average.
        loss: loss to reach.
        first: number of the first update to include.
        node: node of a workload; all of them if None.
    """

    WANTED: ClassVar[str] = f"a measure: {_wanted()}"
    PATTERN: ClassVar[str] = rf"^\s*(?:{_pattern()})\s*$"
    DESCRIPTION: ClassVar[str] = f"One number of a run: {_wanted()}."

    name: str
    accuracy: float | None = None
    window: int = 1
    loss: float | None = None
    first: int | None = None
    value: float | None = None
    node: str | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a measure.

        Raises:
            InvalidValue: there is no such measure, or an argument is invalid.
        """
        if re.match(cls.PATTERN, text) is None:
            raise InvalidValue(shortened(text), cls.WANTED)
        name, _, arguments = text.strip().removesuffix(")").partition("(")
        values = arguments.split(",") if arguments else ()
        definition = cls(name).definition
        if "node" in definition.parameters:
            return cls(name, node=arguments.strip() or None)
        given = dict(zip(definition.parameters, map(float, values), strict=False))
        accuracy, loss, first = (given.get(one) for one in ("accuracy", "loss", "first"))
        value = given.get("value")
        share = value if accuracy is None and unit_of(definition.metric) else accuracy
        if loss is not None and not loss > 0:
            raise InvalidValue(shortened(text), "a loss above 0, like convergence_time(0.5)")
        if share is not None and not 0 < share <= 1:
            raise InvalidValue(
                shortened(text), "an accuracy above 0 and at most 1, like updates_to(0.9)"
            )
        window = given.get("window", 1)
        if not 1 <= window <= 1000:
            raise InvalidValue(shortened(text), "1 to 1,000 evaluations to average")
        first = None if first is None else int(first)
        return cls(name, accuracy, int(window), loss, first, value)

    def __str__(self) -> str:
        goals = (self.accuracy, self.value, self.loss, self.first)
        given = [one for one in goals if one is not None]
        parts = [f"{one:.10g}" for one in given]
        if self.window > 1:
            parts.append(str(self.window))
        if self.node is not None:
            parts.append(self.node)
        return f"{self.name}({','.join(parts)})" if parts else self.name

    @property
    def definition(self) -> Definition:
        """The definition of the measure; of a training, if it has such a measure."""
        found = definition_of(self.name) or WORKLOAD_MEASURES.get(self.name)
        assert found is not None, self.name
        return found

    @property
    def title(self) -> str:
        """The column heading."""
        reached = "" if self.accuracy is None else f" {100 * self.accuracy:g} %"
        if self.loss is not None:
            reached = f" {self.loss:g}"
        if self.value is not None:
            share = unit_of(self.definition.metric)
            reached = f" {100 * self.value:g} %" if share else f" {self.value:g}"
        if self.first is not None:
            reached = f" {self.first:,}"
        averaged = f", mean of {self.window}" if self.window > 1 else ""
        node = f" of {self.node}" if self.node else ""
        return f"{self.definition.title}{reached}{averaged}{node}"

    def suits(self, scenario: Scenario | Workload) -> bool:
        """Return whether runs of this scenario have such a measure."""
        definition = self.definition
        if not isinstance(scenario, Workload):
            return definition_of(self.name) is not None and definition.column != "sent_bytes"
        if self.name in WORKLOAD_MEASURES or self.name in OF_LOSS:
            return True
        in_series = not definition.column or definition.column in SERIES
        return bool(definition.metric) and definition.evaluations and in_series

    def of(self, run: Run | WorkloadRun) -> float:
        """Return the value; NaN if not measured, infinity if never reached."""
        if not self.suits(run.scenario):
            return nan
        if isinstance(run, WorkloadRecord):
            return self._of_workload(run)
        if self.definition.evaluations:
            return self.of_evaluations(run)
        return self._of(run, run.scenario)

    def of_evaluations(self, run: Evaluated | WorkloadRun) -> float:
        """Return the value from evaluations alone; NaN if they are empty or not sufficient."""
        if not self.definition.evaluations:
            return nan
        series = series_of(run, self.definition.metric or "loss")
        return self._of(series, run.scenario) if len(series) else nan

    def _of_workload(self, run: WorkloadRun) -> float:
        own = WORKLOAD_MEASURES.get(self.name)
        if own is not None:
            value = own.of(run, **{one: getattr(self, one) for one in own.parameters})
            return nan if value is None else float(value)
        return self.of_evaluations(run)

    def _of(self, source: Run | pd.DataFrame, scenario: Scenario | Workload) -> float:
        definition = self.definition
        arguments: dict[str, Any] = {one: getattr(self, one) for one in definition.parameters}
        if definition.metric:
            arguments["higher"] = _higher(definition.metric, scenario)
        value = definition.of(source, **arguments)
        return nan if value is None else float(value)

    def censored_at(self, run: Evaluated | WorkloadRun) -> float:
        """Return what a value that a run has not reached is greater than; infinity if unknown."""
        column = self.definition.column
        values = series_of(run, self.definition.metric or "loss")[column] if column else ()
        return float(max(values)) if len(values) else inf

    @property
    def is_encoded(self) -> bool:
        """Whether it is a number of bytes that depends on the encoding of the pushes."""
        return self.name in ("ingress", "ingress_to", "update_bytes")

    @property
    def is_share(self) -> bool:
        """Whether it is a share of test samples."""
        return self.definition.unit == "images"

    def show(self, value: float) -> str:
        """Format a value in a suitable form and unit."""
        if not isfinite(value):
            return "never" if isinf(value) else NOTHING
        return UNITS[self.definition.unit](value)


def series_of(run: Evaluated | WorkloadRun, metric: str) -> pd.DataFrame:
    """Return a training's scheduled evaluations, or the values of a workload's metric like them.

    The accuracy of a workload is its metric of that name.
    """
    if not isinstance(run, WorkloadRecord):
        return scheduled(run.evaluations, run.scenario)
    return run.series("accuracy" if metric == ACCURACY else metric, column=metric)


def _higher(metric: str, scenario: Scenario | Workload) -> bool:
    """Return whether higher values of a metric are better."""
    if not isinstance(scenario, Workload):
        return higher_is_better(metric, scenario.evaluate.metrics)
    known = scenario.metrics.get("accuracy" if metric == ACCURACY else metric)
    return known is None or known.better == "higher"


SIDE_BY_SIDE = tuple(
    Measure(name)
    for name in (
        *("final_accuracy", "best_accuracy", "final_loss", "updates", "time", "ingress", "egress"),
        *("staleness", "damping", "steps", "waiting"),
    )
)
"""Measures shown in a comparison of runs."""

SIDE_BY_SIDE_OF_WORKLOADS = tuple(map(Measure, WORKLOAD_MEASURES))
"""The same, for workloads, besides their metrics."""


def metric_measures(scenarios: Iterable[Workload]) -> list[Measure]:
    """Return the best and the last value of each metric of workloads, where they can be named."""
    names = dict.fromkeys(name for one in scenarios for name in one.metrics)
    best = {"loss": "lowest_loss"}
    texts = [text for name in names for text in (best.get(name, f"best_{name}"), f"last_{name}")]
    return [Measure.parse(text) for text in texts if re.match(Measure.PATTERN, text)]


def compared_title(measure: Measure, scenarios: Iterable[Scenario | Workload]) -> str:
    """Return the title of a measure in a comparison of runs.

    The best value leaves out the final evaluation of a training, which a summary's includes.
    """
    of_training = any(not isinstance(one, Workload) for one in scenarios)
    during = of_training and measure.name.startswith("best_")
    return f"{measure.title} during training" if during else measure.title


def side_by_side(scenarios: Iterable[Scenario | Workload]) -> list[Measure]:
    """Return the measures that a comparison of such runs shows."""
    given = list(scenarios)
    found = [one for one in given if isinstance(one, Workload)]
    of_trainings = SIDE_BY_SIDE if len(found) < len(given) else ()
    of_workloads = SIDE_BY_SIDE_OF_WORKLOADS if found else ()
    return [*dict.fromkeys((*of_trainings, *of_workloads, *metric_measures(found)))]
