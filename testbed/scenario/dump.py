"""A scenario as YAML with every default written out: what stands in a run folder."""

from __future__ import annotations

from typing import Any

import yaml

from testbed.scenario.scalars import resolve
from testbed.scenario.schema import Scenario


class _Dumper(yaml.SafeDumper):
    """Quotes what a reader of either YAML version would take for something else than text."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    style = None if resolve(text) == text else "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def dump(scenario: Scenario) -> str:
    """YAML text that loads back to an equal scenario; what is None is left out."""
    data = scenario.model_dump(mode="json", by_alias=True, exclude_none=True)
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
