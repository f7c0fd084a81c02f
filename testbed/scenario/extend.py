"""``extends: base.yaml``: a scenario that says only how it differs from another.

- A mapping is merged with the one below it, key by key; anything else takes the other's place.
- ``null`` takes a key of the base away.
- A member of a family is merged if it is the same one, or if only options are given; another
  member takes its place whole. Code of the user's own is the same with the same file and class;
  another class has none of its options.
- Names of files in a base are relative to the base, as they are where it is run by itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testbed.errors import Problem, ScenarioError
from testbed.scenario.document import Document, Keys, parse_document
from testbed.scenario.override import in_full_form
from testbed.scenario.own_names import own_names
from testbed.scenario.places import Place
from testbed.scenario.scalars import display
from testbed.scenario.shipped import find_scenario
from testbed.scenario.source import display_name, read_text
from testbed.values.family import full_form

EXTENDS = "extends"
REPLACED = Place(None)
"""Stands for a place at which nothing is merged."""


def extend(document: Document, root: Place, locate: Callable[[str], Path] | None) -> Document:
    """The document on top of the one it extends, and that on top of the next, if it extends any.

    Args:
        document: as it was read.
        root: the place of the whole document.
        locate: where a file lies, by its name relative to the document; without it there is none.

    Raises:
        ScenarioError: a base cannot be read, is no YAML, or leads back to itself.
    """
    chain, folder, seen = [document], Path(), set()
    while isinstance(chain[-1].data, dict) and EXTENDS in chain[-1].data:
        name = chain[-1].data[EXTENDS]
        if not isinstance(name, str) or locate is None:
            expected = "the name of a scenario file, like base.yaml"
            hint = "" if locate else "Text that is in no file extends none"
            raise _refusal(chain[-1], found=display(name), expected=expected, hint=hint)
        near = locate(str(folder / name))
        path = find_scenario(near, name=name)
        base = _read(path, chain[-1])
        if os.path.realpath(path) in seen:
            found = f"{display(name)}, which leads back to itself"
            raise _refusal(chain[-1], found=found, expected="a file that extends no file above it")
        seen.add(os.path.realpath(path))
        folder = (folder / name).parent if path == near else path.absolute().parent
        chain.append(_relocated(base, folder))
    whole = _without_extends(chain.pop())
    while chain:
        whole = _Merger(root, whole, _without_extends(chain.pop())).merge()
    return whole


def _read(path: Path, above: Document) -> Document:
    """The base at a path; if it cannot be read at all, that is the fault of whoever names it."""
    try:
        text = read_text(path)
    except ScenarioError as error:
        (problem,) = error.problems
        if problem.line:
            raise
        found = f"{display(above.data[EXTENDS])}: {problem.found}"
        raise _refusal(above, found, problem.expected, hint=problem.hint) from None
    return parse_document(text, display_name(path))


def _relocated(base: Document, folder: Path) -> Document:
    """The base with the names of its own files relative to the document that extends it."""
    for path, name in own_names(base):
        base = base.replace(path, str(folder / name))
    return base


def _without_extends(document: Document) -> Document:
    data = {key: value for key, value in document.data.items() if key != EXTENDS}
    return Document(data, document.origins, document.problems)


@dataclass
class _Merger:
    """Puts one document on top of another.

    Attributes:
        root: the place of the whole document.
        below: the base.
        above: what is said on top of it.
        replaced: the paths at which nothing of the base is left.
    """

    root: Place
    below: Document
    above: Document
    replaced: set[Keys] = field(default_factory=set)

    def merge(self) -> Document:
        data = self._merged((), self.root)
        origins = {
            path: origin
            for path, origin in self.below.origins.items()
            if not any(path[:length] in self.replaced for length in range(len(path) + 1))
        }
        problems = (*self.below.problems, *self.above.problems)
        return Document(data, {**origins, **self.above.origins}, problems)

    def _merged(self, path: Keys, place: Place | None) -> Any:
        """What is at a path at which both documents have something."""
        if place is not None and place.is_family:
            place = self._same_member(path, place)
        below, above = self.below.at(path), self.above.at(path)
        if not isinstance(below, dict) or not isinstance(above, dict) or place == REPLACED:
            self.replaced.add(path)
            return above
        merged = dict(below)
        for key, value in above.items():
            inside = (*path, key)
            if key not in below:
                merged[key] = value
            elif value is None:
                self.replaced.add(inside)
                del merged[key]
            else:
                merged[key] = self._merged(inside, place and place.enter(key))
        return merged

    def _same_member(self, path: Keys, place: Place) -> Place | None:
        """The place of the member that both name, if they do; both are in their full form then."""
        below, above = self.below.at(path), self.above.at(path)
        name, wanted = _member(below, place), _member(above, place)
        if not name or wanted not in (name, None) or not isinstance(above, dict | str):
            return REPLACED
        self.below = in_full_form(self.below, path)
        if wanted is not None:
            self.above = in_full_form(self.above, path)
        if name == "custom":
            self._drop_others_options(path)
        return place.members[name]

    def _drop_others_options(self, path: Keys) -> None:
        """Drop the options of the user's own class in the base where that above is another."""
        below, above = self.below.at(path), self.above.at(path)
        named = [key for key in ("name", "file", "class") if key in below]
        if any(_normal(above.get(key, below[key])) != _normal(below[key]) for key in named):
            self.below = self.below.replace(path, {key: below[key] for key in named})


def _normal(value: Any) -> Any:
    """A name, of a file as the shortest."""
    return os.path.normpath(value) if isinstance(value, str) else value


def _member(value: Any, place: Place) -> str | None:
    """The name of the member that is written at a family's place; None if options alone are."""
    if isinstance(value, dict) and "name" not in value and not place.members.keys() & value.keys():
        return None
    full = full_form(value)
    name = full.get("name") if isinstance(full, dict) else None
    return name if isinstance(name, str) and name in place.members else ""


def _refusal(document: Document, found: str, expected: str, *, hint: str = "") -> ScenarioError:
    origin = document.origin((EXTENDS,))
    return ScenarioError([Problem(origin.file, origin.line, EXTENDS, found, expected, hint)])
