"""The scenario in a run's folder, which testbed wrote: a problem in it is damage."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed.errors import DataError, ScenarioError


@contextmanager
def of_run(file: Path) -> Iterator[None]:
    """Report problems found in this block, which reads a run's ``scenario.yaml``, as damage.

    The advice of a problem is for the author of a scenario, so it is left out.

    Raises:
        DataError: the file is missing or damaged; says where.
    """
    try:
        yield
    except ScenarioError as error:
        first = error.problems[0]
        where = f"{file}:{first.line}" if first.line else str(file)
        path = f"{first.path}: " if first.path else ""
        clauses = [f"found {first.found}" if first.found else ""]
        clauses.append(f"expected {first.expected}" if first.expected else "")
        raise DataError(
            f"{where}: not the scenario of a run: {path}"
            f"{', '.join(filter(None, clauses)) or first.hint}.",
            hint="The file is damaged, or another version of testbed wrote it: restore it.",
        ) from None
