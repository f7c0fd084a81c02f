"""Writes a scenario as YAML with all defaults, as in a run folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

import numpy as np
import yaml

from testbed.errors import Problem, ScenarioError
from testbed.scenario.scalars import resolve
from testbed.scenario.schema import Scenario
from testbed.values.text_value import TextValue


class _Dumper(yaml.SafeDumper):
    """Quotes text that a reader of either YAML version would parse as another type."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    style = None if resolve(text) == text else "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _other(dumper: yaml.SafeDumper, value: object) -> yaml.Node:
    """Represent types that are not plain data: units, paths, numpy's numbers, other mappings."""
    match value:
        case np.generic() | np.ndarray():
            return dumper.represent_data(value.tolist())
        case Mapping():
            return dumper.represent_dict(value)
        case TextValue() | PurePath():
            return _text(dumper, str(value))
    return dumper.represent_undefined(value)


_Dumper.add_representer(str, _text)
_Dumper.add_multi_representer(object, _other)


def dump(scenario: Scenario) -> str:
    """Return YAML text that loads to an equal scenario; fields that are None are omitted."""
    return dump_data(scenario.model_dump(mode="json", by_alias=True, exclude_none=True), "scenario")


def dump_data(data: object, name: str) -> str:
    """Return data as YAML: plain data, NumPy's types, units and paths.

    Args:
        data: the data to convert.
        name: name of the data, for errors.

    Raises:
        ScenarioError: the data contain another type.
    """
    try:
        return str(yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True))
    except yaml.representer.RepresenterError as error:
        found = f"a value of type {type(error.args[-1]).__name__}"
        expected = "mappings, lists, text, numbers, true, false and None"
        raise ScenarioError([Problem(name, 0, "", found, expected)]) from None
