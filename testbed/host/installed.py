"""Files that are installed with the package, below share/edge-testbed; a clone has its own."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

DISTRIBUTION = "edge-testbed"


def installed_files(folder: str = "") -> Iterator[tuple[str, Path]]:
    """Yield the installed files of a folder of the repository, each by its path in that folder."""
    try:
        installed = distribution(DISTRIBUTION).files or []
    except PackageNotFoundError:
        return
    start = f"share/{DISTRIBUTION}/{folder and folder + '/'}"
    for entry in installed:
        _, found, name = entry.as_posix().rpartition(start)
        file = Path(str(entry.locate())).resolve()
        if found and file.is_file():
            yield name, file
