"""Folders with the name of a study's run that are runs of something else."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from testbed.errors import TestbedError
from testbed.studies.found import Found, identity_of
from testbed.studies.study import Study, StudyRun


def runs_made_otherwise(study: Study, runs: Path, found: Found) -> frozenset[StudyRun]:
    """Return the missing runs whose name belongs to a run of other files or another scenario.

    Such a run is what remains after an edit of the study, its scenario or the user's own code.
    """
    return frozenset(run for run in study.runs if run not in found and _is_other(run, runs))


def _is_other(run: StudyRun, runs: Path) -> bool:
    path = runs / run.base_name
    with suppress(TestbedError, OSError):  # damaged, or of another version: nothing is known
        return (path / "run.json").is_file() and identity_of(path) not in run.identities
    return False


def note_on_others(others: Collection[StudyRun]) -> str:
    """Return a clause on such runs; empty without any."""
    runs, were = ("runs", "were") if len(others) != 1 else ("run", "was")
    names = "these names" if len(others) != 1 else "such a name"
    made = f"{len(others)} {runs} of {names} {were} made with other files or another scenario"
    return made if others else ""
