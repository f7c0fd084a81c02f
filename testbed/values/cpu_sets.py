"""CPUs by number, in the kernel's format: ``0-1,3``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby
from reprlib import repr as shortened
from typing import ClassVar, Self

from testbed.errors import InvalidValue
from testbed.values.text_value import TextValue

_RANGE = "[0-9]{1,4}(?:-[0-9]{1,4})?"
_LIST = re.compile(f"{_RANGE}(?:,{_RANGE})*")
_LARGEST = 4095


class CpuSet(TextValue, str):
    """A non-empty set of a host's CPUs, in its shortest form, so equal sets are equal texts."""

    __slots__ = ()

    WANTED: ClassVar[str] = "CPUs by number, in quotes, like '0-1,3'"
    PATTERN: ClassVar[str] = f"^{_LIST.pattern}$"
    DESCRIPTION: ClassVar[str] = "CPUs of the host by number, like 0-1,3."

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse numbers and ranges separated by commas, in any order.

        Raises:
            InvalidValue: invalid text, a descending range, or a number above the kernel's limit.
        """
        if not _LIST.fullmatch(text):
            raise InvalidValue(shortened(text), cls.WANTED)
        numbers: set[int] = set()
        for part in text.split(","):
            first, _, last = part.partition("-")
            low, high = int(first), int(last or first)
            if low > high:
                raise InvalidValue(f"the range {part}", f"its lower end first: {high}-{low}")
            if high > _LARGEST:
                raise InvalidValue(f"the CPU {high}", f"a number of at most {_LARGEST:,}")
            numbers.update(range(low, high + 1))
        return cls.of(numbers)

    @classmethod
    def of(cls, numbers: Iterable[int]) -> Self:
        """Create the set of these CPUs."""
        ordered = sorted(set(numbers))
        ranges = groupby(enumerate(ordered), key=lambda pair: pair[1] - pair[0])
        ends = [[number for _, number in pairs] for _, pairs in ranges]
        return cls(",".join(f"{a[0]}-{a[-1]}" if len(a) > 1 else str(a[0]) for a in ends))

    @property
    def numbers(self) -> frozenset[int]:
        """The numbers of the CPUs."""
        ends = (part.partition("-") for part in self.split(",") if part)
        return frozenset(
            number
            for first, _, last in ends
            for number in range(int(first), int(last or first) + 1)
        )
