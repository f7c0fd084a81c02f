"""Names of runs, as a user may choose them."""

from __future__ import annotations

import re

from testbed.errors import Problem, ScenarioError

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,59}")


def check_name(name: str | None) -> None:
    """Refuse a name that could not name a folder, a control group and a container.

    Raises:
        ScenarioError: the name has other characters, or is too long.
    """
    if name is not None and not _NAME.fullmatch(name):
        expected = "1 to 60 small letters, digits, dots, hyphens and underscores, like lr0.01_s1"
        raise ScenarioError([Problem("--name", 0, "", repr(name), expected)])
