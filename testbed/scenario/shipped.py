"""The scenarios that come with testbed, known by name: ``quickstart``, ``adacomp/paper``."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import testbed

DISTRIBUTION = "edge-testbed"
STUDY = re.compile(r"^scenario:", re.MULTILINE)
"""Where this is found in a file, it is a study of a scenario."""

FOLDER = f"share/{DISTRIBUTION}/scenarios/"
"""Where an installation has them; a clone has them beside the package."""


def shipped() -> Mapping[str, Path]:
    """The scenario files by name, in order; none where only a part of testbed is installed."""
    found = sorted((name, file) for name, file in _files() if name and file.is_file())
    return {name: file for name, file in found if not _is_study(file)}


def find_scenario(path: Path, *, name: str = "") -> Path:
    """The path itself, or that of a shipped scenario if there is no such file.

    Args:
        path: what the user has named.
        name: how, if not by the path.
    """
    if path.suffix or os.path.lexists(path):
        return path
    return shipped().get(name or path.as_posix(), path)


def _is_study(file: Path) -> bool:
    return STUDY.search(file.read_text(encoding="utf-8")) is not None


def _files() -> Iterator[tuple[str, Path]]:
    clone = Path(testbed.__file__).parent.parent / "scenarios"
    if (clone / "schema.json").is_file():
        for file in clone.rglob("*.yaml"):
            yield file.relative_to(clone).with_suffix("").as_posix(), file
        return
    try:
        installed = distribution(DISTRIBUTION).files or []
    except PackageNotFoundError:
        return
    for entry in installed:
        _, found, name = entry.as_posix().rpartition(FOLDER)
        if found and name.endswith(".yaml"):
            yield name.removesuffix(".yaml"), Path(str(entry.locate())).resolve()
