"""Runs what a study needs and is not there yet: simulated runs side by side, live ones alone."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING

from testbed.errors import NodeError, TestbedError
from testbed.run.follow import wait_for_end
from testbed.studies.carry_out import ENTRY, Errand
from testbed.studies.found import (
    Found,
    FoundRun,
    alone,
    begin_anew,
    examine,
    find_runs,
    left_off,
    results_folder,
)
from testbed.studies.reuse import ReusedGradients, reused_gradients
from testbed.studies.study import Study, StudyRun
from testbed.telemetry.folder import RunFolder
from testbed.telemetry.registry import Registry

if TYPE_CHECKING:
    from testbed.studies.report import StudyReport

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Failure:
    """Why a run has not come to its end.

    Attributes:
        message: what its process said, or how that ended.
        exit_code: of the process, as that of ``testbed up``.
    """

    message: str
    exit_code: int


@dataclass(frozen=True, repr=False)
class Swept:
    """A study after a sweep.

    Attributes:
        study: the study, or a part of it.
        runs: the folder of runs.
        found: its runs that have come to their end.
        failed: why the others have not, run by run.
    """

    study: Study
    runs: Path
    found: Found
    failed: Mapping[StudyRun, Failure]

    def __repr__(self) -> str:
        there = f"{len(self.found)} of {len(self.study.runs)} runs are there"
        bad = f"{len(self.invalid)} of them not valid, {len(self.failed)} failed"
        return f"<Swept {self.study.name}: {there}, {bad}>"

    @property
    def invalid(self) -> list[FoundRun]:
        """Runs that came to their end, but whose measurements cannot be trusted."""
        return [one for one in self.found.values() if one.condition == "invalid"]

    def report(self, part: str | None = None) -> StudyReport:
        """Make and write down its tables, figures and verdicts; see ``report_study``."""
        from testbed.studies.report import report_study

        return report_study(self.study, runs=self.runs, part=part)


def sweep(
    study: Study,
    *,
    runs: Path,
    environment: Mapping[str, str],
    home: Path,
    jobs: int | None = None,
    reuse_bytes: int = 0,
    argv: Sequence[str] = ("testbed", "sweep"),
    tell: Tell = lambda text: None,
) -> Swept:
    """Run what a study needs and is not there yet.

    A run is known by its resolved scenario. One that has come to its end is not repeated, be it
    valid or not; one that was broken off, or failed, goes on from its checkpoint or begins anew.

    Args:
        study: see ``load_study``; ``study.only(name)`` for a part of it.
        runs: folder of all runs; the results' folder is made there as well.
        environment: of this process.
        home: the user's home.
        jobs: how many simulated runs go on side by side, at most one a CPU; default one a CPU.
        reuse_bytes: how much of the runs' gradients is kept meanwhile, for runs that train as one
            before them did; 0 for nothing.
        argv: the command line, for the record.
        tell: is told of every run that begins or ends, in a line.

    Returns:
        What is there now. A run that fails does not keep the others from being run.

    Raises:
        ScenarioError: the results' folder is another study's.
        TestbedError: another sweep is at work in ``runs``.
        HostError: the disk has less room than ``reuse_bytes``.
        KeyboardInterrupt: what was going on was ended first.
    """
    count = len(os.sched_getaffinity(0))
    jobs = max(1, min(jobs or count, count))
    with alone(runs), reused_gradients(runs, reuse_bytes, side_by_side=jobs) as gradients:
        results_folder(study, runs)
        found = _wait_for_others(find_runs(study, runs), tell)
        missing = [run for run in study.runs if run not in found or not _has_ended(found[run])]
        there = len(study.runs) - len(missing)
        tell(f"{study.name}: {len(study.runs)} runs, {there} there already")
        crew = Crew(runs, environment, home, tuple(argv), tell, gradients, total=len(missing))
        crew.carry_out([run for run in missing if run.scenario.simulated], jobs=jobs)
        crew.carry_out([run for run in missing if not run.scenario.simulated], jobs=1)
        now = {run: one for run, one in find_runs(study, runs).items() if _has_ended(one)}
    return Swept(study, runs, now, crew.failed)


def _has_ended(found: FoundRun) -> bool:
    return found.condition in ("valid", "invalid")


def _wait_for_others(found: Found, tell: Tell) -> dict[StudyRun, FoundRun]:
    """What is there once the runs have ended that somebody else began."""
    result = dict(found)
    for run, one in found.items():
        if one.condition == "goes on":
            tell(f"{one.path.name} goes on: waiting for its end")
            wait_for_end(RunFolder(one.path), timeout_seconds=None)
            result[run] = examine(one.path)
    return result


@dataclass
class Job:
    """A run that goes on.

    Attributes:
        run: which one.
        name: of its folder.
        process: carries it out.
        log: what the process prints.
        ended: a pidfd, readable when the process has ended.
        slot: the CPUs it has.
    """

    run: StudyRun
    name: str
    process: subprocess.Popen[bytes]
    log: IO[bytes]
    ended: int
    slot: list[int]


@dataclass
class Crew:
    """Processes that each carry out one run.

    Attributes:
        runs: the folder of runs.
        environment: of this process.
        home: the user's home.
        argv: for the record of each run.
        tell: is told of every beginning and end.
        gradients: those that runs reuse; None for none.
        total: how many runs there are to do.
        failed: why runs have not come to their end.
    """

    runs: Path
    environment: Mapping[str, str]
    home: Path
    argv: tuple[str, ...]
    tell: Tell
    gradients: ReusedGradients | None
    total: int
    failed: dict[StudyRun, Failure] = field(default_factory=dict)
    _begun: int = 0

    def carry_out(self, runs: Sequence[StudyRun], *, jobs: int) -> None:
        """Carry runs out, so many at once; each has CPUs of its own."""
        cpus = sorted(os.sched_getaffinity(0))
        side_by_side = max(1, min(jobs, len(runs)))
        slots = [cpus[index::side_by_side] for index in range(side_by_side)]
        waiting, going = deque(runs), list[Job]()
        with _ended_together(going):
            while waiting or going:
                while waiting and slots:
                    self._begin(waiting.popleft(), slots, going)
                if not going:
                    continue
                ready, _, _ = select.select([job.ended for job in going], [], [])
                for job in [one for one in going if one.ended in ready]:
                    self._conclude(job)
                    going.remove(job)
                    slots.append(job.slot)

    def _begin(self, run: StudyRun, slots: list[list[int]], going: list[Job]) -> None:
        self._begun += 1
        registry = Registry.of_user(self.environment, self.home)
        try:
            resumed = left_off(run, self.runs)
            name = resumed or begin_anew(run, self.runs, registry)
        except TestbedError as error:
            self._fail(run, run.base_name, Failure(str(error), error.exit_code))
            return
        self.tell(f"[{self._begun}/{self.total}] {name} {'goes on' if resumed else 'begins'}")
        slot = slots.pop()
        errand = Errand.of(
            run,
            name=name,
            runs=self.runs,
            argv=self.argv,
            home=self.home,
            cpus=slot,
            resumes=resumed is not None,
            reuse=self.gradients.of(name) if self.gradients else None,
        )
        log = tempfile.TemporaryFile()  # noqa: SIM115 - closed when its process has ended
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", ENTRY],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=log,
            env=self.environment,
        )
        going.append(Job(run, name, process, log, os.pidfd_open(process.pid), slot))
        assert process.stdin is not None
        with suppress(BrokenPipeError), process.stdin as pipe:  # it says itself why it has ended
            pipe.write(errand.text().encode())

    def _conclude(self, job: Job) -> None:
        status = job.process.wait()
        os.close(job.ended)
        job.log.seek(0)
        said = job.log.read().decode(errors="replace").strip()
        job.log.close()
        path, reused = self.runs / job.name, self._gradients_reused(job)
        try:
            found = examine(path)
        except TestbedError as error:
            found = FoundRun(path, "broken off", error.message)
        if found.condition == "valid":
            self.tell(f"{job.name} finished: {found.reason}{reused}")
        elif found.condition == "invalid":
            self.tell(f"{job.name} is INVALID, and kept: {found.reason}{reused}")
        else:
            ended = f"its process ended by signal {-status}" if status < 0 else found.reason
            code = status if status > 0 else NodeError.exit_code
            self._fail(job.run, job.name, Failure(said or ended, code))

    def _gradients_reused(self, job: Job) -> str:
        """What is told of them of a run that has ended."""
        if self.gradients is None:
            return ""
        refused, count = self.gradients.refused(job.name), self.gradients.end(job.name)
        told = f"; {count:,} gradients reused" if count else ""
        if refused:
            told += f"; {len(refused):,} of --reuse were damaged and computed again: {refused[0]}"
        return told

    def _fail(self, run: StudyRun, name: str, failure: Failure) -> None:
        self.failed[run] = failure
        self.tell(f"{name} FAILED: {failure.message.partition(chr(10))[0]}")


@contextmanager
def _ended_together(going: list[Job]) -> Iterator[None]:
    """End what still goes on when the sweep is broken off, and wait until it has ended."""
    try:
        yield
    except BaseException:
        for job in going:
            job.process.terminate()
        for job in going:
            job.process.wait()
            os.close(job.ended)
            job.log.close()
        raise
