"""The existing runs of a study, their results by case and seed, and the folder for its report."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from testbed.errors import HostError, Problem, ScenarioError, TestbedError
from testbed.reports.any_run import open_run
from testbed.reports.run_measure import Measure
from testbed.runtimes.lock import is_controlled
from testbed.scenario import load
from testbed.scenario.load_workload import is_workload_file, load_workload
from testbed.scenario.own_code import COPIES, names_of
from testbed.scenario.traces import own_copy
from testbed.scenario.workload import Workload
from testbed.studies.kept import (
    ENDING,
    FOLDER,
    KeptRun,
    StudyResult,
    kept_runs,
)
from testbed.studies.statistics import Estimate, estimate
from testbed.studies.study import (
    Case,
    Study,
    StudyRun,
    digests,
    identity,
    own_digests,
)
from testbed.telemetry.files import read_json, write_atomically
from testbed.telemetry.folder import RunFolder
from testbed.telemetry.registry import Registry

if TYPE_CHECKING:
    from testbed.telemetry.event_kinds import State

Condition = Literal["valid", "invalid", "running", "interrupted"]

MARKER = "study.json"


@dataclass(frozen=True)
class FoundRun:
    """A run of a study that has a folder or a file of kept numbers."""

    path: Path  # the folder, or the file
    # ``valid`` and ``invalid`` runs have finished; a run that failed, was interrupted, or lost
    # its process is ``interrupted``
    condition: Condition
    reason: str  # for an invalid run, the verdict's reasons; otherwise, why it ended

    @property
    def name(self) -> str:
        """Name of the run."""
        return self.path.name.removesuffix(ENDING)

    @property
    def is_kept(self) -> bool:
        """Whether only the file of kept numbers exists."""
        return self.path.name.endswith(ENDING)

    @property
    def has_finished(self) -> bool:
        """Whether it has the numbers of a whole run."""
        return self.condition in ("valid", "invalid")


Found = Mapping[StudyRun, FoundRun]


def kept_beside(folder: Path) -> dict[str, FoundRun]:
    """Return the kept runs of a study's folder by identity, but those with an invalid scenario.

    Raises:
        TestbedError: a file is damaged.
    """
    found = {}
    for kept in kept_runs(folder / FOLDER):
        with suppress(ScenarioError):
            found[identity(kept.scenario, {})] = _ended(kept.path, kept.content)
    return found


def find_runs(
    study: Study, runs: Path, kept: Callable[[Path], Mapping[str, FoundRun]] = kept_beside
) -> dict[StudyRun, FoundRun]:
    """Find the runs of a study in a folder of runs or among kept files, under any name.

    If several runs have the same identity, the one with the best condition is returned; if these
    are equal, a folder is preferred.

    Args:
        study: the study.
        runs: the folder of runs.
        kept: reads the kept runs beside a study, for many studies at best only once.

    Raises:
        TestbedError: a file kept next to the study is damaged.
    """

    def rank(one: FoundRun) -> tuple[int, bool]:
        order: tuple[Condition, ...] = ("interrupted", "running", "invalid", "valid")
        return order.index(one.condition), not one.is_kept

    by_identity = dict(kept(study.file.parent))
    for path in sorted(runs.iterdir()) if runs.is_dir() else ():
        if not (path / "run.json").is_file():
            continue
        with suppress(TestbedError, OSError):  # damaged, or of another version: not its run
            known_as, found = identity_of(path), examine(path)
            before = by_identity.get(known_as)
            if before is None or rank(found) > rank(before):
                by_identity[known_as] = found
    return {
        run: by_identity[one] for run in study.runs for one in run.identities if one in by_identity
    }


def _ended(path: Path, told: Mapping[str, Any]) -> FoundRun:
    """Return the condition of a finished run, from its ``verdict`` and ``reason``."""
    verdict = told["verdict"]
    if verdict["valid"]:
        return FoundRun(path, "valid", told["reason"])
    return FoundRun(path, "invalid", " ".join(verdict["reasons"]))


def identity_of(path: Path) -> str:
    """Return the identity of the run in a folder; raises as loading its scenario does."""
    if is_workload_file(path / "scenario.yaml"):
        workload = load_workload(path / "scenario.yaml")
        programs = workload.workload.values()
        names = [one for each in programs for one in each.files if one.startswith(COPIES)]
        names += names_of(workload).values()
        copies = [path / one for one in names]
        return identity(workload, digests({file.name: file for file in copies}))
    scenario = load(path / "scenario.yaml", custom_files=path / "custom")
    return identity(scenario, own_digests(scenario, partial(own_copy, path)))


def examine(path: Path) -> FoundRun:
    """Return the condition of a run.

    Raises:
        TestbedError: its folder is damaged.
    """
    run = open_run(path)
    ended: State = run.state.state
    if run.alive or is_controlled(run.folder):  # or its report is still being written
        return FoundRun(path, "running", "")
    if ended != "finished":
        return FoundRun(path, "interrupted", run.state.reason)
    return _ended(path, {"verdict": run.summary["verdict"], "reason": run.state.reason})


def resumable_run(run: StudyRun, runs: Path) -> str | None:
    """Return the name of an interrupted simulation that can resume from its checkpoint, or None."""
    path = runs / run.base_name
    scenario = run.scenario
    if isinstance(scenario, Workload) or not (scenario.simulated and scenario.checkpoint):
        return None
    if _was_interrupted(path, run):
        from testbed.run.simulated import resumable

        with suppress(TestbedError):  # no checkpoint yet, or it is damaged
            resumable(RunFolder(path))
            return run.base_name
    return None


def claim_run_name(run: StudyRun, runs: Path, registry: Registry) -> str:
    """Remove the folder and the containers of an interrupted run; return a name for the new run.

    Only folders with the names that a sweep gives this run are removed, and only if they contain
    the same scenario.

    Raises:
        TestbedError: the containers cannot be removed, or all names are in use.
    """
    for name in (run.base_name, f"{run.base_name[:51].rstrip('-')}-{run.identity[:8]}"):
        path = runs / name
        if _is_incomplete(path) or _was_interrupted(path, run):
            _remove(path, registry)
        if not os.path.lexists(path):
            return name
    raise TestbedError(
        f"{path} exists, but is not a run of this study; its name is needed for a run.",
        hint="Move it elsewhere.",
    )


def _was_interrupted(path: Path, run: StudyRun) -> bool:
    try:
        return identity_of(path) in run.identities and examine(path).condition == "interrupted"
    except (TestbedError, OSError):  # not a run, or damaged
        return False


def _remove(path: Path, registry: Registry) -> None:
    from testbed.run.down import end_run
    from testbed.run.runtime import runtime_of

    folder = RunFolder(path)
    if folder.plan.exists() and folder.run_file.exists():
        ended = end_run(folder, runtime_of(folder).driver(), clock=time.time)
        if ended.failure is not None:
            raise ended.failure
    registry.remove(path)
    shutil.rmtree(path)


def _is_incomplete(path: Path) -> bool:
    """Whether a folder is what remains if a command is killed while it creates a run folder."""
    folder = RunFolder(path)
    if not path.is_dir() or folder.run_file.exists():
        return False
    ours = {part.name for part in (*folder.parts, folder.scenario, folder.plan)}
    return all(entry.name in ours or entry.name.endswith(".tmp") for entry in path.iterdir())


def results_folder(study: Study, runs: Path) -> Path:
    """Return the folder of a study's results; create it if it does not exist.

    Raises:
        ScenarioError: another study, or something else, uses that name.
        HostError: it cannot be created.
    """
    folder = (runs / study.name).absolute()
    mine = {"study": study.name, "file": str(study.file.resolve())}
    marker = folder / MARKER
    known = read_json(marker)
    if known is None and folder.is_dir() and any(folder.iterdir()):
        found, hint = "a folder with other content", "Choose another --runs, or another name"
        raise ScenarioError([_of_name(study, f"{folder}, {found}", hint)])
    if known is not None and known != mine:
        found = f"{folder} with the results of another study, {known.get('file')}"
        hint = f"Choose another --runs or name; if this study has moved, remove {marker}"
        raise ScenarioError([_of_name(study, found, hint)])
    within = folder if study.scale == 1 else folder / f"scale-{study.scale:g}"
    try:
        within.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"{within}: the results folder cannot be created: {error.strerror}."
        raise HostError(message, hint="Choose another folder with --runs.") from None
    if known is None:
        write_atomically(marker, json.dumps(mine, indent=2) + "\n")
    return within


def _of_name(study: Study, found: str, hint: str) -> Problem:
    return Problem(str(study.file), 0, "name", found, "a name that no other study uses there", hint)


@contextmanager
def alone(runs: Path) -> Iterator[None]:
    """Lock a folder of runs against other sweeps: two of them would start the same run.

    Raises:
        TestbedError: another sweep is active there.
    """
    runs.mkdir(parents=True, exist_ok=True)
    with (runs / ".sweep.lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            message = f"Another sweep is active in {runs} (pid {lock.read().strip() or 'unknown'})."
            hint = "Wait until it ends, or choose another folder with --runs."
            raise TestbedError(message, hint=hint) from None
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield


LONG_RUN_SECONDS = 3600.0
"""One seed is enough to judge a case if its runs take at least this long."""


@dataclass(frozen=True)
class Results:
    """The existing results of a study."""

    study: Study  # the study, or a part of it
    whole: Study  # the whole study
    found: Found  # its runs that have a folder or a file of kept numbers
    others: Collection[StudyRun] = ()  # see ``runs_made_otherwise``
    _opened: dict[Path, StudyResult] = field(default_factory=dict)
    _values: dict[tuple[Path, Measure], float] = field(default_factory=dict)

    @cached_property
    def by_case(self) -> dict[Case, list[StudyRun]]:
        """The runs of every case, in the order of the seeds."""
        cases: dict[Case, list[StudyRun]] = {}
        for run in self.whole.runs:
            cases.setdefault(run.case, []).append(run)
        return cases

    def run(self, run: StudyRun) -> StudyResult:
        """Return the numbers of a run; its tables are read only once."""
        found = self.found[run]
        if found.path not in self._opened:
            self._opened[found.path] = (KeptRun.open if found.is_kept else open_run)(found.path)
        return self._opened[found.path]

    def valid(self, case: Case, seeds: Collection[int] | None = None) -> list[StudyRun]:
        """Return the runs of a case that have ended and can be trusted, by default of any seed."""
        runs = [one for one in self.by_case[case] if self.condition(one) == "valid"]
        return runs if seeds is None else [one for one in runs if one.seed in seeds]

    def condition(self, run: StudyRun) -> str:
        """Return the condition of a run; ``not run`` if it was not found."""
        return self.found[run].condition if run in self.found else "not run"

    def common_seeds(self, cases: Sequence[Case]) -> list[int]:
        """Return the seeds for which all these cases have a valid run, ascending."""
        sets = [{run.seed for run in self.valid(case)} for case in cases]
        return sorted(set.intersection(*sets))

    def values(
        self, case: Case, measure: Measure, seeds: Collection[int] | None = None
    ) -> list[float]:
        """Return a measure of a case's valid runs, by default with any seed, in their order."""
        return [self.value(run, measure) for run in self.valid(case, seeds)]

    def ends(
        self, case: Case, measure: Measure, seeds: Collection[int] | None = None
    ) -> list[float]:
        """Return what the runs' values are greater than if they are never reached."""
        return [measure.censored_at(self.run(run)) for run in self.valid(case, seeds)]

    def estimate(
        self, case: Case, measure: Measure, seeds: Collection[int] | None = None
    ) -> Estimate | None:
        """Return the estimate of a measure over a case's valid runs; None without one."""
        values = self.values(case, measure, seeds)
        if not values:
            return None
        ends = self.ends(case, measure, seeds) if inf in values else values
        return estimate(values, ends, self.study.document.report.shown)

    def images(self, case: Case, measure: Measure) -> int | None:
        """Return how many test samples are behind a measure; None if it is no share, or unknown."""
        if not measure.is_share:
            return None
        scenario = self.by_case[case][0].scenario
        if isinstance(scenario, Workload):
            return None
        of_all = scenario.dataset.test_images
        final = measure.name.startswith("final")
        return of_all if final or of_all is None else min(of_all, scenario.evaluate.images)

    def encoding(self, case: Case) -> str:
        """Return the encoding of a case's pushes; empty for a workload, which has none."""
        return str(getattr(self.by_case[case][0].scenario, "encoding", ""))

    def takes_long(self, case: Case) -> bool:
        """Whether any run of the case takes an hour or more."""
        return any(self.run(one).duration_seconds >= LONG_RUN_SECONDS for one in self.valid(case))

    def value(self, run: StudyRun, measure: Measure) -> float:
        """Return a measure of a run in ``found``."""
        key = (self.found[run].path, measure)
        if key not in self._values:
            found = self.run(run)
            self._values[key] = (
                found.value(measure) if isinstance(found, KeptRun) else measure.of(found)
            )
        return self._values[key]

    def short_name(self, case: Case) -> str:
        """Return a case's levels, restricted to factors in which the study's cases differ."""
        return " ".join(case.differing(self.by_case)) or case.name


def spread(values: Sequence[float], show: Callable[[float], str]) -> str:
    """Format values of several seeds for one cell: their mean, minimum and maximum."""
    mean = show(sum(values) / len(values))
    least, greatest = show(min(values)), show(max(values))
    return mean if least == greatest else f"{mean} ({least} to {greatest})"
