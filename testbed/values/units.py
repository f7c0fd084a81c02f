"""Physical quantities as types: Rate (bit/s), Size (bytes), Duration (s).

A quantity is written with its unit (``20mbit``, ``64KiB``, ``30ms``). A bare number is refused, so
no scenario depends on a field's implied unit. Each type is an ordinary number in its base unit, and
prints and serialises in the form that it is parsed from.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import isfinite
from reprlib import repr as shortened
from typing import Any, ClassVar, Self

from testbed.errors import InvalidValue
from testbed.values.text_value import TextValue

_NUMBER = r"[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_QUANTITY = re.compile(rf"\s*({_NUMBER})\s*([A-Za-z]+)\s*")


class Quantity(TextValue, float):
    """A non-negative, finite number in a base unit, parsed from and printed with a unit.

    Attributes:
        UNITS: size of each unit in the base unit.
        NOUN: name of the quantity.
        EXAMPLE: an example in text form.
    """

    UNITS: ClassVar[Mapping[str, float]]
    NOUN: ClassVar[str]
    EXAMPLE: ClassVar[str]

    def __init_subclass__(cls) -> None:
        cls.WANTED = f"a {cls.NOUN} with its unit, like {cls.EXAMPLE}"
        cls.PATTERN = rf"^\s*{_NUMBER}\s*({'|'.join(cls.UNITS)})\s*$"
        cls.DESCRIPTION = f"A {cls.NOUN}, like {cls.EXAMPLE}."

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a quantity such as ``20mbit``.

        Raises:
            InvalidValue: no number, no unit, an unknown unit, or a number that is not finite.
        """
        match = _QUANTITY.fullmatch(text)
        if match is None:
            negative = re.match(cls.PATTERN, text.replace("-", "", 1))
            too_small = ", which is negative" if text.lstrip().startswith("-") and negative else ""
            raise InvalidValue(f"{shortened(text)}{too_small}", cls.WANTED)
        number, unit = match.groups()
        scale = cls.UNITS.get(unit)
        if scale is None:
            known = ", ".join(cls.UNITS)
            raise InvalidValue(
                f"the unit {shortened(unit)}", f"a {cls.NOUN} in one of the units {known}"
            )
        value = float(number) * scale
        if not isfinite(value):
            raise InvalidValue(f"{shortened(text)}, which is too large", cls.WANTED)
        return cls(value)

    def __str__(self) -> str:
        """Return the shortest exact text that parses to the same number."""
        smallest = min(self.UNITS.values())
        for unit, scale in sorted(self.UNITS.items(), key=lambda item: -item[1]):
            text = f"{float(self) / scale:.12g}"
            fits = self >= scale or scale == smallest
            if fits and self > 0 and float(text) * scale == float(self):
                return f"{text}{unit}"
        base_unit = next(unit for unit, scale in self.UNITS.items() if scale == 1)
        return f"{float(self):.17g}{base_unit}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    @classmethod
    def _validate(cls, value: Any) -> Self:
        if isinstance(value, int | float) and not isinstance(value, bool | cls):
            raise InvalidValue(f"{shortened(value)}, a number without a unit", cls.WANTED)
        return super()._validate(value)


class Rate(Quantity):
    """Bits per second, decimal multiples: ``10mbit`` is 10,000,000 bit/s."""

    UNITS: ClassVar[Mapping[str, float]] = {"bit": 1, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
    NOUN: ClassVar[str] = "rate"
    EXAMPLE: ClassVar[str] = "10mbit"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a rate; for a size, the error suggests the rate of that size per second."""
        try:
            each_second = Size.parse(text)
        except InvalidValue:
            return super().parse(text)
        raise InvalidValue(
            shortened(text), f"bits per second, like {cls(each_second * 8)} for {text.strip()}"
        )

    @property
    def bytes_per_second(self) -> float:
        """The same rate in bytes per second."""
        return float(self) / 8


class Size(Quantity):
    """Bytes; ``KB`` is 1000 bytes, ``KiB`` 1024."""

    UNITS: ClassVar[Mapping[str, float]] = {
        "B": 1,
        "KB": 1e3,
        "KiB": 2**10,
        "MB": 1e6,
        "MiB": 2**20,
        "GB": 1e9,
        "GiB": 2**30,
    }
    NOUN: ClassVar[str] = "size"
    EXAMPLE: ClassVar[str] = "64MiB"


class Duration(Quantity):
    """Seconds; ``ms``, ``us``, ``min`` and ``h`` are supported."""

    UNITS: ClassVar[Mapping[str, float]] = {"us": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "h": 3600}
    NOUN: ClassVar[str] = "duration"
    EXAMPLE: ClassVar[str] = "30ms"


def megabytes(size: float) -> str:
    """Format bytes, as a number of megabytes."""
    return f"{size / 1e6:,.0f} MB"
