"""Executes the missing runs of a study: simulated runs in parallel, live runs one at a time."""

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
from testbed.studies.carry_out import ENTRY, StudyRunRequest
from testbed.studies.found import (
    Found,
    FoundRun,
    alone,
    claim_run_name,
    examine,
    find_runs,
    results_folder,
    resumable_run,
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
    """Why a run did not finish.

    Attributes:
        message: error message of its process, or how the process ended.
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
        found: its finished runs.
        failed: why the others did not finish, by run.
    """

    study: Study
    runs: Path
    found: Found
    failed: Mapping[StudyRun, Failure]

    def __repr__(self) -> str:
        there = f"{len(self.found)} of {len(self.study.runs)} runs exist"
        bad = f"{len(self.invalid)} of them not valid, {len(self.failed)} failed"
        return f"<Swept {self.study.name}: {there}, {bad}>"

    @property
    def invalid(self) -> list[FoundRun]:
        """Runs that finished, but with measurements that cannot be trusted."""
        return [one for one in self.found.values() if one.condition == "invalid"]

    def report(self, part: str | None = None) -> StudyReport:
        """Create and write its tables, figures and verdicts; see ``report_study``."""
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
    """Execute the missing runs of a study.

    A run is identified by its resolved scenario. A finished run is not repeated, whether it is
    valid or not; an interrupted or failed run resumes from its checkpoint or starts from scratch.

    Args:
        study: see ``load_study``; ``study.only(name)`` for a part of it.
        runs: folder of all runs; the results folder is created there as well.
        environment: of this process.
        home: the user's home.
        jobs: maximum number of parallel simulated runs, at most one per CPU, which is the default.
        reuse_bytes: maximum size of gradients kept during the sweep, for runs with the same
            training as an earlier run; 0 disables this.
        argv: the command line, for the record.
        tell: receives a line for every run that starts or ends.

    Returns:
        The resulting runs. A run that fails does not stop the others.

    Raises:
        ScenarioError: the results folder is another study's.
        TestbedError: another sweep is active in ``runs``.
        HostError: the disk has less free space than ``reuse_bytes``.
        KeyboardInterrupt: active runs were ended first.
    """
    count = len(os.sched_getaffinity(0))
    jobs = max(1, min(jobs or count, count))
    with alone(runs), reused_gradients(runs, reuse_bytes, side_by_side=jobs) as gradients:
        results_folder(study, runs)
        found = _wait_for_others(find_runs(study, runs), tell)
        missing = [run for run in study.runs if run not in found or not _has_ended(found[run])]
        there = len(study.runs) - len(missing)
        tell(f"{study.name}: {len(study.runs)} runs, {there} exist already")
        pool = RunPool(runs, environment, home, tuple(argv), tell, gradients, total=len(missing))
        pool.carry_out([run for run in missing if run.scenario.simulated], jobs=jobs)
        pool.carry_out([run for run in missing if not run.scenario.simulated], jobs=1)
        now = {run: one for run, one in find_runs(study, runs).items() if _has_ended(one)}
    return Swept(study, runs, now, pool.failed)


def _has_ended(found: FoundRun) -> bool:
    return found.condition in ("valid", "invalid")


def _wait_for_others(found: Found, tell: Tell) -> dict[StudyRun, FoundRun]:
    """Wait for runs that another process started; return what was found afterwards."""
    result = dict(found)
    for run, one in found.items():
        if one.condition == "running":
            tell(f"{one.path.name} is active: waiting for its end")
            wait_for_end(RunFolder(one.path), timeout_seconds=None)
            result[run] = examine(one.path)
    return result


@dataclass
class Job:
    """An active run.

    Attributes:
        run: the run.
        name: name of its folder.
        process: executes it.
        log: output of the process.
        ended: a pidfd, readable when the process has ended.
        slot: the slot of CPUs it uses.
    """

    run: StudyRun
    name: str
    process: subprocess.Popen[bytes]
    log: IO[bytes]
    ended: int
    slot: list[int]


@dataclass
class RunPool:
    """Processes that execute one run each.

    Attributes:
        runs: the folder of runs.
        environment: of this process.
        home: the user's home.
        argv: for the record of each run.
        tell: receives a line for every start and end.
        gradients: gradients for reuse, or None.
        total: number of runs to execute.
        failed: why runs did not finish.
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
        """Execute runs, up to ``jobs`` in parallel; each has its own CPUs."""
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
            resumed = resumable_run(run, self.runs)
            name = resumed or claim_run_name(run, self.runs, registry)
        except TestbedError as error:
            self._fail(run, run.base_name, Failure(str(error), error.exit_code))
            return
        self.tell(f"[{self._begun}/{self.total}] {name} {'resumes' if resumed else 'starts'}")
        slot = slots.pop()
        request = StudyRunRequest.of(
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
        with suppress(BrokenPipeError), process.stdin as pipe:  # the process says why it ended
            pipe.write(request.text().encode())

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
            found = FoundRun(path, "interrupted", error.message)
        if found.condition == "valid":
            self.tell(f"{job.name} finished: {found.reason}{reused}")
        elif found.condition == "invalid":
            self.tell(f"{job.name} is INVALID, its folder is kept: {found.reason}{reused}")
        else:
            ended = f"its process was killed by signal {-status}" if status < 0 else found.reason
            code = status if status > 0 else NodeError.exit_code
            self._fail(job.run, job.name, Failure(said or ended, code))

    def _gradients_reused(self, job: Job) -> str:
        """Return a note on the gradients that an ended run reused."""
        if self.gradients is None:
            return ""
        refused, count = self.gradients.refused(job.name), self.gradients.end(job.name)
        told = f"; {count:,} gradients reused" if count else ""
        if refused:
            told += (
                f"; {len(refused):,} stored gradients were damaged and recomputed, the first: "
                f"{refused[0]}"
            )
        return told

    def _fail(self, run: StudyRun, name: str, failure: Failure) -> None:
        self.failed[run] = failure
        self.tell(f"{name} FAILED: {failure.message.partition(chr(10))[0]}")


@contextmanager
def _ended_together(going: list[Job]) -> Iterator[None]:
    """End the active runs if the sweep is interrupted, and wait until they have ended."""
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
