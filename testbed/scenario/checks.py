"""What no single field can tell: files beside the scenario, links the kernel can have, ports."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from testbed.errors import Problem
from testbed.family import full_form
from testbed.network.qdiscs import qdiscs_of
from testbed.scenario.document import Document, Keys
from testbed.scenario.links import link_spec
from testbed.scenario.scalars import display, dotted
from testbed.scenario.schema import Link, Scenario

MOST_WORKERS = 1022
"""A Linux bridge has 1,023 ports, and one of them is the parameter server's."""


def check_files(document: Document, locate: Callable[[str], Path]) -> Iterator[Problem]:
    """The user's own files must be where ``locate`` says."""
    for family in ("model", "dataset"):
        value = document.at((family,))
        member = full_form(value)
        if not isinstance(member, dict) or member.get("name") != "custom":
            continue
        file = member.get("file")
        # Path.is_file would raise for a name that is too long.
        if isinstance(file, str) and not os.path.isfile(locate(file)):  # noqa: PTH113
            inner = () if "name" in value else ("custom",)
            path = (family, *inner, "file")
            expected = f"the {family}'s Python file, relative to the folder of the scenario"
            yield _problem(document, path, found=f"no file {display(file)}", expected=expected)


def check_whole(scenario: Scenario, document: Document) -> Iterator[Problem]:
    """What a valid scenario may still ask for in vain."""
    if scenario.workers.count > MOST_WORKERS:
        yield _problem(
            document,
            ("workers", "count"),
            found=f"{scenario.workers.count:,}",
            expected=f"at most {MOST_WORKERS:,} workers: a switch has one port more, the PS's",
        )
    links: dict[Keys, Link] = {("ps", "link"): scenario.ps.link}
    for name, member in scenario.workers.classes.items():
        links[("workers", "classes", name, "link")] = member.link
    for path, link in links.items():
        try:
            qdiscs_of(link_spec(link, address="", mac="", time_scale=scenario.time_scale))
        except ValueError as error:
            direction, _, reason = str(error).partition(": ")
            yield _problem(document, (*path, direction), hint=reason)


def _problem(
    document: Document, path: Keys, *, found: str = "", expected: str = "", hint: str = ""
) -> Problem:
    origin = document.origin(path)
    return Problem(origin.file, origin.line, dotted(path), found, expected, hint)
