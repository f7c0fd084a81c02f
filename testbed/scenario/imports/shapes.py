"""Quantities of other tools, in the words of a scenario."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from typing import Any

from testbed.errors import InvalidValue
from testbed.values.units import Duration

_RATE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMGkmg]?)(?:bps|bit|bit/s)\s*")
_TIME = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(us|ms|s)?\s*")
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmg]?)(i?)b?\s*", re.IGNORECASE)
_SHARE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(%?)\s*")


def rate(text: Any) -> str:
    """Convert ``10Mbps``."""
    number, unit = _match(_RATE, text, "a rate like 10Mbps")
    return f"{number}{unit.lower()}bit"


def milliseconds(text: Any) -> str:
    """Convert a time; a number without a unit is in milliseconds. Zero becomes nothing."""
    number, unit = _match(_TIME, text, "a time like 20ms, or a number of milliseconds")
    return f"{number}{unit or 'ms'}" if float(number) else ""


def size(text: Any) -> str:
    """Convert ``512M``, ``1Gb`` or ``1GiB``."""
    number, multiple, binary = _match(_SIZE, text, "a size like 512M or 1GiB")
    return f"{number}{multiple.upper()}{'i' if binary and multiple else ''}B"


def share(text: Any) -> float | None:
    """Convert ``0.1%`` or ``0.001``, both of which are a thousandth; zero becomes None."""
    number, percent = _match(_SHARE, text, "a share like 0.001 or 0.1%")
    value = float(number) / (100 if percent else 1)
    if value >= 1:
        raise InvalidValue(str(text), "less than all packets")
    return value or None


def words(command: Any) -> list[str]:
    """Convert a command, which may be a list of its words."""
    if isinstance(command, list | tuple):
        return [str(word) for word in command]
    return shlex.split(str(command)) if command else []


def direction(
    *, bandwidth: Any = None, delay: Any = None, jitter: Any = None, loss: Any = None
) -> dict[str, Any]:
    """Return the shape of one direction, without what is not given or zero."""
    read: dict[str, tuple[Callable[[Any], Any], Any]] = {
        "rate": (rate, bandwidth),
        "delay": (milliseconds, delay),
        "jitter": (milliseconds, jitter),
        "loss": (share, loss),
    }
    found = {name: convert(given) for name, (convert, given) in read.items() if given is not None}
    shape = {name: value for name, value in found.items() if value}
    if Duration.parse(shape.get("jitter", "0s")) > Duration.parse(shape.get("delay", "0s")):
        expected = f"at most the delay, {shape.get('delay', 'which is zero')}"
        raise InvalidValue(f"a jitter of {shape['jitter']}", expected)
    return shape


def _match(pattern: re.Pattern[str], text: Any, expected: str) -> tuple[str, ...]:
    found = pattern.fullmatch(str(text))
    if found is None:
        raise InvalidValue(repr(text), expected)
    return found.groups("")
