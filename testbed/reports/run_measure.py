"""A measure of a run as studies, tables and comparisons write it: ``updates_to(0.97,10)``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, isinf, nan
from reprlib import repr as shortened
from typing import TYPE_CHECKING, ClassVar, Self

from testbed.errors import InvalidValue
from testbed.reports.registry import MEASURES, UNITS, Argument, Definition
from testbed.reports.table import NOTHING
from testbed.values.text_value import TextValue

if TYPE_CHECKING:
    import pandas as pd

    from testbed.reports.frames import Run

_INTEGER = r"\s*[0-9]+\s*"
_NUMBER = r"\s*[0-9]*\.?[0-9]+\s*"
_TEXT = {"accuracy": _NUMBER, "loss": _NUMBER, "first": _INTEGER}
_EXAMPLE = {"accuracy": "0.9", "loss": "0.5", "first": "1000"}


def _brackets(parameters: Sequence[Argument]) -> str:
    """Return the pattern of a measure's arguments."""
    needed = ",".join(_TEXT[one] for one in parameters if one != "window")
    if "window" not in parameters:
        return rf"\({needed}\)" if needed else ""
    return rf"\({needed}(?:,{_INTEGER})?\)" if needed else rf"(?:\({_INTEGER}\))?"


def _pattern() -> str:
    forms: dict[str, list[str]] = {}
    for name, definition in MEASURES.items():
        forms.setdefault(_brackets(definition.parameters), []).append(name)
    return "|".join(f"(?:{'|'.join(names)}){brackets}" for brackets, names in forms.items())


def _wanted() -> str:
    alone, examples = [], []
    for name, definition in MEASURES.items():
        first = next(iter(definition.parameters), "window")
        if first == "window":
            alone.append(name)
        else:
            examples.append(f"{name}({_EXAMPLE[first]})")
    return ", ".join((*alone, "best_accuracy(10)", *examples, "updates_to(0.9,10)"))


@dataclass(frozen=True)
class Measure(TextValue):
    """A measure with its arguments.

    Attributes:
        name: one of MEASURES.
        accuracy: accuracy to reach, as a fraction.
        window: number of evaluations in the moving average.
        loss: loss to reach.
        first: number of the first update to include.
    """

    WANTED: ClassVar[str] = f"a measure: {_wanted()}"
    PATTERN: ClassVar[str] = rf"^\s*(?:{_pattern()})\s*$"
    DESCRIPTION: ClassVar[str] = f"One number of a run: {_wanted()}."

    name: str
    accuracy: float | None = None
    window: int = 1
    loss: float | None = None
    first: int | None = None

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
        given = dict(zip(MEASURES[name].parameters, map(float, values), strict=False))
        accuracy, loss, first = (given.get(one) for one in ("accuracy", "loss", "first"))
        if loss is not None and not loss > 0:
            raise InvalidValue(shortened(text), "a loss above 0, like convergence_time(0.5)")
        if accuracy is not None and not 0 < accuracy <= 1:
            raise InvalidValue(
                shortened(text), "an accuracy above 0 and at most 1, like updates_to(0.9)"
            )
        window = given.get("window", 1)
        if not 1 <= window <= 1000:
            raise InvalidValue(shortened(text), "1 to 1,000 evaluations to average")
        return cls(name, accuracy, int(window), loss, None if first is None else int(first))

    def __str__(self) -> str:
        given = [one for one in (self.accuracy, self.loss, self.first) if one is not None]
        parts = [f"{one:.10g}" for one in given]
        if self.window > 1:
            parts.append(str(self.window))
        return f"{self.name}({','.join(parts)})" if parts else self.name

    @property
    def definition(self) -> Definition:
        """The definition of the measure."""
        return MEASURES[self.name]

    @property
    def title(self) -> str:
        """The column heading."""
        reached = "" if self.accuracy is None else f" {100 * self.accuracy:g} %"
        if self.loss is not None:
            reached = f" {self.loss:g}"
        if self.first is not None:
            reached = f" {self.first:,}"
        averaged = f", mean of {self.window}" if self.window > 1 else ""
        return f"{self.definition.title}{reached}{averaged}"

    def of(self, run: Run) -> float:
        """Return the value; NaN if not measured, infinity if never reached."""
        if self.definition.evaluations:
            return self.of_evaluations(run.evaluations)
        return self._of(run)

    def of_evaluations(self, evaluations: pd.DataFrame) -> float:
        """Return the value from evaluations alone; NaN if they are empty or not sufficient."""
        if not self.definition.evaluations or evaluations["final"].all():
            return nan
        return self._of(evaluations)

    def _of(self, source: Run | pd.DataFrame) -> float:
        arguments = {name: getattr(self, name) for name in self.definition.parameters}
        value = self.definition.of(source, **arguments)
        return nan if value is None else float(value)

    @property
    def is_encoded(self) -> bool:
        """Whether it is a number of bytes that depends on the encoding of the pushes."""
        return self.name in ("ingress", "ingress_to", "update_bytes")

    @property
    def is_share(self) -> bool:
        """Whether it is a share of test images."""
        return self.definition.unit == "images"

    def show(self, value: float) -> str:
        """Format a value in a suitable form and unit."""
        if not isfinite(value):
            return "never" if isinf(value) else NOTHING
        return UNITS[self.definition.unit](value)


SIDE_BY_SIDE = tuple(
    Measure(name)
    for name in (
        *("final_accuracy", "best_accuracy", "final_loss", "updates", "time", "ingress", "egress"),
        *("staleness", "damping", "steps", "waiting"),
    )
)
"""Measures shown in a comparison of runs."""
