"""Checks of the kinds of payload that a user's own algorithm declares."""

from __future__ import annotations

from inspect import isabstract

from testbed.algorithms.base import AlgorithmConfig
from testbed.payloads import Payload
from testbed.payloads.notes import TYPES
from testbed.values.user_code import UserCode

LEAST_NUMBER = 64


def check_payloads(kind: type[AlgorithmConfig], code: UserCode) -> None:
    """Refuse kinds of payload that are incomplete, cannot be told apart, or have no arrays.

    Raises:
        ScenarioError: names the kind.
    """
    numbers: list[int] = []
    for one in kind.PAYLOADS:
        if not (isinstance(one, type) and issubclass(one, Payload)):
            raise code.error(f"{one!r} in PAYLOADS", "subclasses of Payload")
        own = UserCode(code.path, one.__name__, code.path_in_scenario)
        if isabstract(one):
            lacking = ", ".join(f"{name}()" for name in sorted(one.__abstractmethods__))
            found = f"{one.__name__} without {lacking}"
            raise own.error(found, "all methods")
        number = getattr(one, "NUMBER", None)
        if type(number) is not int or number < LEAST_NUMBER or number in numbers:
            expected = f"a number from {LEAST_NUMBER}, another for each kind"
            raise own.error(f"NUMBER = {number!r}", expected)
        numbers.append(number)
        types = getattr(one, "TYPES", ())
        if not types or not set(types) <= TYPES:
            expected = f"types among {', '.join(sorted(TYPES))}"
            raise own.error(f"TYPES = {types!r}", expected)
