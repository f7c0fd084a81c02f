"""Node selectors of users, such as ``w3``, ``w[0-9]``, ``ps`` or ``class=slow``."""

from __future__ import annotations

from fnmatch import fnmatchcase


def matches(selector: str, *, name: str, device_class: str) -> bool:
    """Whether a selector matches the node of this name and class (empty for a node without one)."""
    key, equals, wanted = selector.partition("=")
    if not equals:
        return fnmatchcase(name, selector)
    return key == "class" and bool(device_class) and fnmatchcase(device_class, wanted)
