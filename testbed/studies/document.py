"""The fields of a study file, as ``testbed.scenario.schema`` defines those of a scenario."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

from testbed.errors import InvalidValue
from testbed.reports.run_measure import Measure
from testbed.values.fields import Name, Seed, StrictModel

LONGEST_LEVEL = 40


def _level(value: Any) -> Any:
    """Return a level's name; ``rate: 0.1`` names the level ``0.1``, though YAML reads a number."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:g}" if isinstance(value, float) else str(value)
    return value


def _one_line(text: str) -> str:
    if not text.strip() or not text.isprintable():
        raise InvalidValue(repr(text) if text else "", "words on one line")
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
    """A figure: a curve for every case, the mean over its seeds within the least and the greatest.

    Attributes:
        show: what is drawn: accuracy (top-1), top5 or loss of the evaluations during training.
        against: what it is drawn against: updates, steps, emulated time, or payload into the PS.
        where: which cases; all by default.
        panels: factors of which each combination of levels has a panel of its own.
        mean_of: so many evaluations in a row are averaged.
        range: the ends of the vertical axis; accuracies are shares.
        between: what is drawn: from here to there on the horizontal axis; all by default.
        mark: where a horizontal line is drawn.
        log: which axes are logarithmic: x is the horizontal one, y the vertical one.
    """

    show: Literal["accuracy", "top5", "loss"] = "accuracy"
    against: Literal["updates", "steps", "time", "ingress"] = "updates"
    where: Selection = Field(default={})
    panels: tuple[str, ...] = ()
    mean_of: Annotated[int, Field(ge=1, le=1000, strict=True)] = 1
    range: Annotated[tuple[Real, ...], Field(min_length=2, max_length=2)] | None = None
    between: Annotated[tuple[Real, ...], Field(min_length=2, max_length=2)] | None = None
    mark: Real | None = None
    log: tuple[Literal["x", "y"], ...] = ()

    @model_validator(mode="after")
    def _logarithms(self) -> Curves:
        for axis, ends in (("x", self.between), ("y", self.range)):
            if axis in self.log and ends is not None and min(ends) <= 0:
                raise InvalidValue(
                    f"a logarithmic {axis} axis from {min(ends):g} on", "ends above 0"
                )
        return self


class TableOf(StrictModel):
    """A table: a row for every case, a column for every measure.

    Attributes:
        measures: such as final_accuracy or updates_to(0.97,10).
        where: which cases; all by default.
    """

    measures: Annotated[tuple[Measure, ...], Field(min_length=1)]
    where: Selection = Field(default={})


DEFAULT_TABLE = TableOf(
    measures=tuple(
        Measure(name) for name in ("final_accuracy", "best_accuracy", "updates", "ingress", "time")
    )
)


class ReportOf(StrictModel):
    """What is reported.

    Attributes:
        figures: by name.
        tables: by name.
    """

    figures: dict[Name, Curves] = Field(default={"accuracy": Curves()})
    tables: dict[Name, TableOf] = Field(default={"results": DEFAULT_TABLE})


class PaperNumber(StrictModel):
    """A number of the paper's, which tables show beside ours.

    Attributes:
        measure: which of a run's numbers it is.
        where: the cases that it is of; all by default.
        value: the number, or words such as `23,000 to 53,000`.
        source: where in the paper it stands.
    """

    measure: Measure
    where: Selection = Field(default={})
    value: Real | Words
    source: Words


class Paper(StrictModel):
    """What was published.

    Attributes:
        source: the publication.
        numbers: its numbers.
    """

    source: Words
    numbers: tuple[PaperNumber, ...] = ()


class Expectation(StrictModel):
    """Something that is expected of the results: an order, or a value, of one case or of two.

    Attributes:
        measure: of what.
        source: who says so, and where.
        where: levels that all cases in it have.
        order: cases, from that with the greatest measure to that with the least.
        ratio: two cases: what is meant is the measure of the first over that of the second.
        difference: two cases: what is meant is the measure of the first without that of the second.
        value: what is expected of the one case that `where` names, or of the two; `never` of what
            is never reached.
        at_most: instead of a value: it is this, or less.
        tolerance: how far off it may be, as a share of the value. Of an order: how far the
            next may be ahead after all; with one, equals are in order too.
        basis: ``arithmetic`` of what follows from the scenario's own numbers, with any seed, and
            says nothing about a training; ``posthoc`` where the value, its tolerance or the
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
    """A study: a scenario, what is varied in it, and what is made of the runs.

    Attributes:
        name: of the study, of its results' folder, and the beginning of its runs' names.
        scenario: a scenario's file, relative to the study's, or a scenario in place.
        vary: factors by name. A factor is a list of settings (`path=value`, as `--set` takes
            them), or levels by name, each a setting or a list of them. Settings are applied in
            the order of the factors.
        cases: which combinations of levels are run: every entry is the product of the levels that
            it names, and of all levels of the factors that it does not. Without it, all are.
        seeds: every case is run with each of them; by default with the scenario's own.
        report: the figures and tables.
        paper: what was published.
        expects: what is expected of the results, by name.
    """

    name: Name
    scenario: str | dict[str, Any]
    vary: dict[Name, Factor] = Field(default={})
    cases: tuple[Selection, ...] = ()
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1)] | None = None
    report: ReportOf = ReportOf()
    paper: Paper | None = None
    expects: dict[Name, Expectation] = Field(default={})
