"""The values of plain YAML scalars, without the surprises of YAML 1.1.

YAML readers disagree on ``no``, ``1:30``, ``010`` or ``1_000``: here they are text, so a field that
expects a number or true/false reports it. Numbers that are invalid in all fields are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice
from math import isfinite
from reprlib import repr as shortened

from testbed.errors import InvalidValue

Scalar = str | int | float | bool | None

_WORDS: dict[str, Scalar] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_DECIMAL = re.compile(r"[-+]?(0|[1-9][0-9]*)?(\.[0-9]*)?([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_OTHER_BASES = re.compile(r"[-+]?(0[xXoObB]?[0-9a-fA-F_]+|[0-9][0-9_]*)")
_LARGEST_DIGITS = 400
_LARGEST = 2**63 - 1
_MOST_SHOWN = 8


def resolve(text: str) -> Scalar:
    """Return the value of an unquoted scalar.

    Raises:
        InvalidValue: a number that is not finite or too large.
    """
    if text in _WORDS:
        return _WORDS[text]
    if _NOT_FINITE.fullmatch(text):
        raise InvalidValue(text, "a finite number")
    looks_like_number = text[-1] in "0123456789." and text[0] in "+-.0123456789"
    if not looks_like_number or len(text) > _LARGEST_DIGITS:
        return text
    if _INTEGER.fullmatch(text):
        whole = int(text)
        if abs(whole) > _LARGEST:
            raise InvalidValue(shortened(text), f"a number of at most {_LARGEST}")
        return whole
    if _DECIMAL.fullmatch(text) and any(digit in text for digit in "0123456789"):
        return _decimal(text)
    return text


def _decimal(text: str) -> Scalar:
    try:
        number = float(text)
    except ValueError:  # such as `.e5`
        return text
    if not isfinite(number):
        raise InvalidValue(shortened(text), "a finite number")
    return number


def display(value: object) -> str:
    """Format a value as in the file, shortened for messages."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case str():
            return shortened(value)
        case dict():
            return f"a mapping with the keys {_some_of(value)}" if value else "{}"
        case list() | tuple():
            simple = all(isinstance(item, str | int | float) for item in value[:8])
            return f"[{_some_of(value)}]" if simple else f"a list of {len(value)}"
        case _:
            return str(value)


def is_number(text: str) -> bool:
    """Whether the text would be a number without quotes."""
    try:
        return isinstance(resolve(text), int | float) and text not in _WORDS
    except InvalidValue:
        return False


def is_number_elsewhere(text: str) -> bool:
    """Whether other YAML readers parse the text as a number: octal, hexadecimal, with ``_``."""
    return _OTHER_BASES.fullmatch(text) is not None


def dotted(keys: Iterable[str | int]) -> str:
    """Format a path inside the file, with keys that fit on one line."""
    return ".".join(on_one_line(str(key)) for key in keys)


def on_one_line(text: str, longest: int = 40) -> str:
    """Return the text if it is short and printable, otherwise a shortened form."""
    return text if len(text) <= longest and text.isprintable() else shortened(text)


def _some_of(values: Iterable[object]) -> str:
    """Format values on one line, at most the first few."""
    parts = [_short(value) for value in islice(values, _MOST_SHOWN + 1)]
    return ", ".join([*parts[:_MOST_SHOWN], "..."] if len(parts) > _MOST_SHOWN else parts)


def _short(value: object) -> str:
    if not isinstance(value, str | int | float):
        return "..."
    return on_one_line(str(value))
