"""What an event of a run is, and the names of all events of the controller and of the PS."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, dataclass_transform


@dataclass_transform(frozen_default=True)
@dataclass(frozen=True)
class Event:
    """Something that happened; every subclass is a frozen dataclass."""

    def written(self) -> Mapping[str, Any]:
        """Return the content of its line."""
        return vars(self)

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True)(cls)


class Unknown(Event):
    """An event that another version of testbed wrote: it is kept, but has no effect."""

    name: str
    fields: Mapping[str, Any]  # everything else in its line but time and source

    def written(self) -> Mapping[str, Any]:
        return self.fields


CONTROLLER: dict[str, type[Event]] = {}
"""The controller's events, by name in the file: by default that of the class, in snake case."""

PS: dict[str, type[Event]] = {}
"""The parameter server's events, by name in the file."""


class ControllerEvent(Event):
    """An event of the controller."""

    def __init_subclass__(cls, name: str = "") -> None:
        super().__init_subclass__()
        CONTROLLER[name or _snake_case(cls)] = cls


class PsEvent(Event):
    """An event of the parameter server (PS)."""

    def __init_subclass__(cls, name: str = "") -> None:
        super().__init_subclass__()
        PS[name or _snake_case(cls)] = cls


def _snake_case(kind: type[Event]) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()
