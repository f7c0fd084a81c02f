"""The fields of a study file, as ``testbed.scenario.schema`` has a scenario's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

from testbed.errors import InvalidValue
from testbed.models.metrics import ACCURACY
from testbed.reports.run_measure import Measure
from testbed.scenario.document import Keys
from testbed.studies.statistics import Interval, IntervalKind
from testbed.telemetry.entry import METRIC
from testbed.values.fields import Name, Seed, StrictModel

LONGEST_LEVEL = 40


def _level(value: Any) -> Any:
    """Return a level's name; ``rate: 0.1`` names the level ``0.1``, though YAML reads a number."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:g}" if isinstance(value, float) else str(value)
    return value


def _one_line(text: str) -> str:
    if not text.strip() or not text.isprintable():
        raise InvalidValue(repr(text) if text else "", "text on one line")
    return text


def _short(text: str) -> str:
    if not text or len(text) > LONGEST_LEVEL or not text.isprintable():
        raise InvalidValue("", f"a name of at most {LONGEST_LEVEL} printable characters")
    return text


Words = Annotated[str, AfterValidator(_one_line)]
LevelName = Annotated[str, AfterValidator(_short)]
Level = Annotated[str, BeforeValidator(_level), WithJsonSchema({"type": ["string", "number"]})]
Selection = dict[str, Level | tuple[Level, ...]]
"""Levels by factor: selects the cases that have one of the given levels of every factor."""

Settings = str | tuple[str, ...]
Factor = tuple[str, ...] | dict[LevelName, Settings]
Real = Annotated[float, Field(allow_inf_nan=False)]
TwoCases = Annotated[tuple[Selection, ...], Field(min_length=2, max_length=2)]
Tolerance = Annotated[float, Field(ge=0, lt=10, allow_inf_nan=False)]


class Curves(StrictModel):
    """A figure: a curve for every case, with the mean, minimum and maximum over its seeds.

    Attributes:
        show: vertical axis: accuracy (top-1), loss or a metric of the evaluations during training,
            by its name.
        against: horizontal axis: updates, steps, emulated time, or payload into the PS; of
            workloads time, which is the default then, or the bytes sent by all nodes.
        where: the cases to draw; all by default.
        panels: factors; each combination of their levels has its own panel.
        mean_of: the number of consecutive evaluations to average.
        range: the limits of the vertical axis; accuracies are shares.
        between: the limits of the horizontal axis; everything by default.
        mark: the position of a horizontal line.
        log: the logarithmic axes: x is the horizontal one, y the vertical one.
    """

    show: Annotated[str, Field(pattern=f"^{METRIC}$")] = "accuracy"
    against: Literal["updates", "steps", "time", "ingress", "sent"] = "updates"
    where: Selection = Field(default={})
    panels: tuple[str, ...] = ()
    mean_of: Annotated[int, Field(ge=1, le=1000, strict=True)] = 1
    range: Annotated[tuple[Real, ...], Field(min_length=2, max_length=2)] | None = None
    between: Annotated[tuple[Real, ...], Field(min_length=2, max_length=2)] | None = None
    mark: Real | None = None
    log: tuple[Literal["x", "y"], ...] = ()

    @property
    def column(self) -> str:
        """The column of the evaluations that it shows."""
        return ACCURACY if self.show == "accuracy" else self.show

    @model_validator(mode="after")
    def _logarithms(self) -> Curves:
        for axis, ends in (("x", self.between), ("y", self.range)):
            if axis in self.log and ends is not None and min(ends) <= 0:
                raise InvalidValue(
                    f"a logarithmic {axis} axis from {min(ends):g} on", "limits above 0"
                )
        return self


class TableOf(StrictModel):
    """A table: a row for every case, a column for every measure; with a baseline, of tests.

    Attributes:
        measures: such as final_accuracy or updates_to(0.97,10).
        where: the cases to list; all by default.
        baseline: levels by factor; every other case is compared with the case that has these and
            otherwise the same levels, seed by seed: the differences and their tests.
    """

    measures: Annotated[tuple[Measure, ...], Field(min_length=1)]
    where: Selection = Field(default={})
    baseline: dict[str, Level] = Field(default={})


DEFAULT_TABLE = TableOf(
    measures=tuple(
        Measure(name) for name in ("final_accuracy", "best_accuracy", "updates", "ingress", "time")
    )
)


class ReportOf(StrictModel):
    """The figures and tables of a study.

    Attributes:
        figures: by name.
        tables: by name.
        interval: what tables and the bands of figures show around the mean over the seeds:
            ``range``, from minimum to maximum; ``deviation``, one standard deviation; ``t`` or
            ``bootstrap``, a confidence interval of the mean.
        confidence: the level of confidence intervals.
    """

    figures: dict[Name, Curves] = Field(default={"accuracy": Curves()})
    tables: dict[Name, TableOf] = Field(default={"results": DEFAULT_TABLE})
    interval: IntervalKind = "range"
    confidence: Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)] = 0.95

    @property
    def shown(self) -> Interval:
        """The interval with its level."""
        return Interval(self.interval, self.confidence)


class PaperNumber(StrictModel):
    """A published number, which tables show next to the measured one.

    Attributes:
        measure: the measure of a run that it corresponds to.
        where: the cases that it applies to; all by default.
        value: the number, or a text such as `23,000 to 53,000`.
        source: its place in the paper.
    """

    measure: Measure
    where: Selection = Field(default={})
    value: Real | Words
    source: Words

    @property
    def shown(self) -> str:
        """The number as text, in its measure's unit."""
        return self.value if isinstance(self.value, str) else self.measure.show(self.value)


class Paper(StrictModel):
    """Published results.

    Attributes:
        source: the publication.
        numbers: its numbers.
    """

    source: Words
    numbers: tuple[PaperNumber, ...] = ()


class Expectation(StrictModel):
    """An expected result: an order of cases, or a value of one or two cases.

    Attributes:
        measure: the measure to compare.
        source: the origin of the expectation.
        where: levels common to all its cases.
        order: cases, from the greatest to the smallest measure.
        ratio: two cases: the measure of the first, divided by that of the second, is compared.
        difference: two cases: the measure of the first, minus that of the second, is compared.
        value: the expected value of the one case that `where` selects, or of the two; `never` for
            a measure that is never reached.
        at_most: instead of a value: an upper limit.
        tolerance: the allowed deviation, as a share of the value. For an order: by how much the
            next case may be ahead; with a tolerance, equal measures are in order too.
        basis: ``arithmetic`` if it follows from the numbers in the scenario, with any seed, and
            says nothing about the training; ``posthoc`` if the value, its tolerance or the
            threshold of its measure was chosen after runs had been seen.
    """

    measure: Measure
    source: Words
    where: Selection = Field(default={})
    order: Annotated[tuple[Selection, ...], Field(min_length=2)] | None = None
    ratio: TwoCases | None = None
    difference: TwoCases | None = None
    value: Real | Literal["never"] | None = None
    at_most: Real | None = None
    tolerance: Tolerance | None = None
    basis: Literal["arithmetic", "posthoc"] | None = None

    @model_validator(mode="after")
    def _says_one_thing(self) -> Expectation:
        given = [name for name in ("order", "value", "at_most") if getattr(self, name) is not None]
        if len(given) != 1:
            found = " and ".join(given) or "neither an order nor a value"
            raise InvalidValue(found, "one of `order`, `value` and `at_most`")
        of_two = [name for name in ("ratio", "difference") if getattr(self, name) is not None]
        if len(of_two) > 1 or (of_two and self.order is not None):
            raise InvalidValue(
                " and ".join([*given, *of_two]), "one of order, ratio and difference"
            )
        if self.value == "never" and of_two:
            raise InvalidValue(f"a {of_two[0]} of never", "`never` of one case")
        if (self.tolerance is None) == isinstance(self.value, float):
            if self.tolerance is None:
                raise InvalidValue(
                    "a value without a tolerance", "a tolerance, such as 0.1 for 10 %"
                )
            if self.order is None:
                raise InvalidValue(
                    f"a tolerance of {given[0]}", "a tolerance only of a value or an order"
                )
        if self.value == 0 and self.tolerance:
            found = f"a tolerance of {100 * self.tolerance:g} % of 0, which is 0"
            expected = "`at_most` in place of the value, or `tolerance: 0` for exactly 0"
            raise InvalidValue(found, expected)
        return self


class StudyDocument(StrictModel):
    """A study: a scenario, the factors to vary in it, and the report on its runs.

    Attributes:
        name: the name of the study and of its results folder, and the prefix of its runs' names.
        scenario: the file of a scenario, relative to the study's, or an inline scenario.
        vary: factors by name. A factor is a list of settings (`path=value`, as for `--set`), or a
            mapping of level names to a setting or a list of settings. Settings are applied in the
            order of the factors.
        cases: the combinations of levels to run: every entry is the product of the levels that it
            lists, and of all levels of the other factors. By default, all combinations.
        seeds: the seeds for every case; by default the seed of the scenario.
        report: the figures and tables.
        paper: published results.
        expects: expected results, by name.
    """

    name: Name
    scenario: str | dict[str, Any]
    vary: dict[Name, Factor] = Field(default={})
    cases: tuple[Selection, ...] = ()
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1)] | None = None
    report: ReportOf = ReportOf()
    paper: Paper | None = None
    expects: dict[Name, Expectation] = Field(default={})


def metrics_of(study: StudyDocument) -> Iterator[tuple[Keys, str, Selection]]:
    """Yield where a study refers to a metric, its name, and for which cases."""
    for name, figure in study.report.figures.items():
        yield ("report", "figures", name, "show"), figure.column, figure.where
    for path, measure, where in measures_of(study):
        if measure.definition.metric:
            yield path, measure.definition.metric, where


def measures_of(study: StudyDocument) -> Iterator[tuple[Keys, Measure, Selection]]:
    """Yield where a study refers to a measure, the measure, and for which cases."""
    for name, table in study.report.tables.items():
        path: Keys = ("report", "tables", name, "measures")
        for place, one in enumerate(table.measures):
            yield (*path, place), one, table.where
    for place, number in enumerate(study.paper.numbers if study.paper else ()):
        path = ("paper", "numbers", place, "measure")
        yield path, number.measure, number.where
    for name, expected in study.expects.items():
        yield ("expects", name, "measure"), expected.measure, expected.where
