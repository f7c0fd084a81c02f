"""Laws of random durations, written as in papers: ``exponential``, ``uniform(0.5, 1.5)``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import isclose, log1p, sqrt
from reprlib import repr as shortened
from typing import TYPE_CHECKING, ClassVar, Literal, Self, cast, get_args

from testbed.errors import InvalidValue
from testbed.values.text_value import TextValue

if TYPE_CHECKING:
    from numpy.random import Generator

Family = Literal["constant", "exponential", "uniform", "normal", "lognormal"]

FAMILIES = get_args(Family)

_NUMBER = r"\s*(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\s*"
_LAW = re.compile(
    rf"\s*(?:(constant|exponential)|(uniform|normal|lognormal)\s*\(({_NUMBER}),({_NUMBER})\))\s*"
)
_WANTED = "a law: constant, exponential, uniform(0.5,1.5), normal(1,0.1) or lognormal(1,0.5)"

# Negative draws of a normal law are repeated, which raises its mean; here by 0.15 %.
_LARGEST_DEVIATION = 1 / 3
_WIDEST = 10.0  # standard deviation of a lognormal law; else few draws dominate its mean


@dataclass(frozen=True)
class Law(TextValue):
    """A law with mean 1; its draws are multiplied by a mean duration.

    Attributes:
        first: lower end of a uniform law, mean of a normal or lognormal law.
        second: upper end of a uniform law, standard deviation of a normal or lognormal law.
    """

    WANTED: ClassVar[str] = _WANTED
    PATTERN: ClassVar[str] = (
        rf"^\s*(constant|exponential|(uniform|normal|lognormal)\s*\({_NUMBER},{_NUMBER}\))\s*$"
    )
    DESCRIPTION: ClassVar[str] = f"A law with mean 1, {_WANTED.removeprefix('a law: ')}."

    family: Family
    first: float = 1.0
    second: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a law.

        Raises:
            InvalidValue: an unknown law, wrong arguments, or a mean other than 1.
        """
        match = _LAW.fullmatch(text)
        if match is None:
            cut = "(" in text and ")" not in text  # at a comma inside {...}
            raise InvalidValue(shortened(text), f"{_WANTED}{', in quotes' if cut else ''}")
        plain, name, first, second = match.groups()
        if plain is not None:
            return cls(cast(Family, plain))
        law = cls(cast(Family, name), float(first), float(second))
        law._check(text)
        return law

    def _check(self, text: str) -> None:
        uniform = self.family == "uniform"
        mean = (self.first + self.second) / 2 if uniform else self.first
        if not isclose(mean, 1.0):
            found = f"{shortened(text)}, whose mean is {mean:g}"
            raise InvalidValue(found, "a law of mean 1 (the scale stands in `mean`)")
        if uniform and self.first > self.second:
            raise InvalidValue(shortened(text), "the lower end first, like uniform(0.5,1.5)")
        if self.family == "lognormal" and self.second > _WIDEST:
            expected = f"a standard deviation of at most {_WIDEST:g}, like lognormal(1,0.5)"
            raise InvalidValue(shortened(text), expected)
        if self.family == "normal" and self.second > _LARGEST_DEVIATION:
            found = f"{shortened(text)}, which would often be negative"
            raise InvalidValue(found, "a standard deviation of at most 0.333, like normal(1,0.1)")

    def draw(self, rng: Generator) -> float:
        """Draw once; never negative (a normal law is drawn again until it is not)."""
        match self.family:
            case "constant":
                return 1.0
            case "exponential":
                return float(rng.exponential())
            case "uniform":
                return float(rng.uniform(self.first, self.second))
            case "normal":
                value = -1.0
                while value < 0:
                    value = float(rng.normal(self.first, self.second))
                return value
            case "lognormal":  # exp of a normal law with this variance, and the mean that gives 1
                variance = log1p(self.second**2)
                return float(rng.lognormal(-variance / 2, sqrt(variance)))

    def __str__(self) -> str:
        if self.family in ("constant", "exponential"):
            return self.family
        first, second = (repr(value).removesuffix(".0") for value in (self.first, self.second))
        return f"{self.family}({first},{second})"
