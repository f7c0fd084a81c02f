"""Executes the missing runs of a study: simulated runs in parallel, live runs one at a time."""

from __future__ import annotations

import os
import select
import shutil
import tempfile
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from testbed.errors import HostError, ScenarioError
from testbed.host.requirements import usable_cpus
from testbed.run.follow import wait_for_end
from testbed.run.prepare import Request
from testbed.run.simulated import SimulationResources
from testbed.scenario.load import with_source_lines
from testbed.scenario.schema import Scenario
from testbed.simulation.gradients import Reuse, count_reused, refused
from testbed.simulation.outline import ray_pool
from testbed.studies.found import (
    Found,
    FoundRun,
    alone,
    examine,
    find_runs,
    results_folder,
)
from testbed.studies.others import note_on_others, runs_made_otherwise
from testbed.studies.progress import Claim, Failure, Progress, Tell
from testbed.studies.run_processes import RunProcess, RunStarter, StudyRunRequest, run_processes
from testbed.studies.study import Study, StudyRun
from testbed.telemetry.folder import RunFolder
from testbed.telemetry.registry import Registry
from testbed.telemetry.wall import WALL
from testbed.values.units import Size

if TYPE_CHECKING:
    from testbed.studies.report import StudyReport


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
    ray: str | None = None,
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
        jobs: maximum number of parallel simulated runs, by default one per CPU; on this machine it
            is also at most that.
        reuse_bytes: maximum size of gradients kept during the sweep, for runs with the same
            training as an earlier run; 0 disables this.
        ray: address of a Ray cluster that executes the simulated runs; None for this machine.
        argv: the command line, for the record.
        tell: receives a line for every run that starts or ends.

    Returns:
        The resulting runs. A run that fails does not stop the others.

    Raises:
        ScenarioError: the results folder is another study's, or a run has a Ray cluster of its own,
            which is not possible with ``reuse_bytes`` and ``ray``.
        TestbedError: another sweep is active in ``runs``.
        HostError: the disk has less free space than ``reuse_bytes``, or there is no such cluster,
            or one of its nodes cannot execute runs.
        ValueError: ``reuse_bytes`` with ``ray``: gradients are kept on this machine.
        KeyboardInterrupt: active runs were ended first.
    """
    if ray and reuse_bytes:
        raise ValueError("reuse is only possible without ray: gradients are kept on this machine.")
    _check_pools(study, "--ray" if ray else "--reuse" if reuse_bytes else "")
    count = usable_cpus()
    side_by_side = max(1, min(jobs or count, count))
    with alone(runs), reused_gradients(runs, reuse_bytes, side_by_side=side_by_side) as gradients:
        results_folder(study, runs)
        found = _wait_for_others(find_runs(study, runs), tell)
        missing = [run for run in study.runs if run not in found or not found[run].has_finished]
        there = len(study.runs) - len(missing)
        others = note_on_others(runs_made_otherwise(study, runs, found))
        tell(
            f"{study.name}: {len(study.runs)} runs, {there} exist already{others and '; '}{others}"
        )
        registry = Registry.of_user(environment, home)
        progress = Progress(runs, registry, tell, total=len(missing))
        pool = RunPool(progress, environment, home, tuple(argv), gradients)
        alone_here = [run for run in missing if not run.scenario.simulated or _has_cluster(run)]
        simulated = [run for run in missing if run not in alone_here]
        if ray and simulated:
            from testbed.runtimes.ray_cluster import connected
            from testbed.studies.cluster import RayCluster, interrupted_by_sigterm

            with connected(ray, asked_by="--ray"), interrupted_by_sigterm():
                cluster = RayCluster(progress, environment, tuple(argv))
                cluster.check()
                cluster.carry_out(simulated, jobs=jobs)
        else:
            pool.carry_out(simulated, jobs=side_by_side)
        pool.carry_out(alone_here, jobs=1)
        now = {run: one for run, one in find_runs(study, runs).items() if one.has_finished}
    return Swept(study, runs, now, progress.failed)


def _has_cluster(run: StudyRun) -> bool:
    """Return whether a run uses all of a Ray cluster."""
    return isinstance(run.scenario, Scenario) and ray_pool(run.scenario) is not None


def _check_pools(study: Study, option: str) -> None:
    """Refuse an option that is not possible with runs whose own pool is a Ray cluster.

    Raises:
        ScenarioError: there is such a run.
    """
    why = {
        "--ray": "a run is either a task of the cluster or uses actors of it",
        "--reuse": "gradients are kept on this disk, which the actors of a Ray pool do not have",
    }
    if option and any(map(_has_cluster, study.runs)):
        base = study.document.scenario
        file = study.file.parent / base if isinstance(base, str) else study.file
        with with_source_lines(file):
            expected = f"`pool: local` with {option}: {why[option]}"
            raise ScenarioError.at("runtime.pool", "ray", expected)


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
    """An active run."""

    claim: Claim
    process: RunProcess  # executes it
    log: IO[bytes]  # output of the process
    slot: list[int]  # the slot of CPUs it uses


@dataclass
class RunPool:
    """Executes runs on this machine, each in a process of its own."""

    progress: Progress
    environment: Mapping[str, str]  # of this process
    home: Path  # the user's home
    argv: tuple[str, ...]  # for the record of each run
    gradients: ReusedGradients | None  # gradients for reuse, or None

    def carry_out(self, runs: Sequence[StudyRun], *, jobs: int) -> None:
        """Execute runs, up to ``jobs`` in parallel; each has its own CPUs."""
        if not runs:
            return
        cpus = sorted(os.sched_getaffinity(0))
        side_by_side = max(1, min(jobs, len(runs)))
        slots = [cpus[index::side_by_side] for index in range(side_by_side)]
        waiting, going = deque(runs), list[Job]()
        with run_processes(self.environment) as starter, _ended_together(going):
            while waiting or going:
                while waiting and slots:
                    self._begin(waiting.popleft(), starter, slots, going)
                if not going:
                    continue
                ready, _, _ = select.select([job.process.ended for job in going], [], [])
                for job in [one for one in going if one.process.ended in ready]:
                    self._conclude(job)
                    going.remove(job)
                    slots.append(job.slot)

    def _begin(
        self, run: StudyRun, starter: RunStarter, slots: list[list[int]], going: list[Job]
    ) -> None:
        claim = self.progress.claim(run)
        if claim is None:
            return
        slot = slots.pop()
        request = StudyRunRequest(
            Request[Any](
                run.scenario,
                beside=run.beside.absolute(),
                runs=self.progress.runs.absolute(),
                name=claim.name,
                argv=self.argv,
                environment=dict(self.environment),
                home=self.home,
                now=WALL.read(),
            ),
            cpus=tuple(slot),
            resumes=claim.resumes,
            simulated=SimulationResources(
                reuse=self.gradients.of(claim.name) if self.gradients else None
            ),
        )
        log = tempfile.TemporaryFile()  # noqa: SIM115 - closed when its process has ended
        going.append(Job(claim, starter.start(request, log), log, slot))

    def _conclude(self, job: Job) -> None:
        status = job.process.wait()
        job.log.seek(0)
        said = job.log.read().decode(errors="replace").strip()
        job.log.close()
        note = self._gradients_reused(job.claim.name)
        self.progress.conclude(job.claim, status=status, said=said, note=note)

    def _gradients_reused(self, name: str) -> str:
        """Return a note on the gradients that an ended run reused."""
        if self.gradients is None:
            return ""
        refused, count = self.gradients.refused(name), self.gradients.end(name)
        told = f"; {count:,} gradients reused" if count else ""
        if refused:
            told += (
                f"; {len(refused):,} stored gradients were damaged and recomputed, the first: "
                f"{refused[0]}"
            )
        return told


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
            job.log.close()
        raise


FOLDER = ".gradients"
"""In the folder of runs."""


@dataclass
class ReusedGradients:
    """Storage for the gradients of a sweep's runs, kept while the sweep is active.

    The gradients of an ended run are dropped when as many others have ended as run in parallel;
    each of these has links to what it reused. Thus runs with the same training pass gradients on,
    and of n runs in parallel, the gradients of at most 2 n runs exist.
    """

    folder: Path  # contains a folder per run
    most_bytes: int  # maximum size of all folders together
    side_by_side: int  # maximum number of parallel runs
    _ended: deque[str] = field(default_factory=deque)

    def of(self, run: str) -> Reuse:
        """Return where a new run finds gradients and writes its own."""
        return Reuse(self.folder, run, self.most_bytes // (2 * self.side_by_side))

    def refused(self, run: str) -> list[str]:
        """Return the problems of entries that a run has found and recomputed."""
        return refused(self.folder / run)

    def end(self, run: str) -> int:
        """Drop gradients of an earlier run as this one has ended; return how many it reused."""
        self._ended.append(run)
        if len(self._ended) > self.side_by_side:
            shutil.rmtree(self.folder / self._ended.popleft(), ignore_errors=True)
        return count_reused(self.folder / run)


@contextmanager
def reused_gradients(
    runs: Path, most_bytes: int, *, side_by_side: int
) -> Iterator[ReusedGradients | None]:
    """Create a folder for gradients in the folder of runs; remove that of a killed sweep.

    Raises:
        HostError: the disk has less free space than ``most_bytes``.
    """
    folder = runs / FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    if not most_bytes:
        yield None
        return
    free = shutil.disk_usage(runs).free
    if free < most_bytes:
        raise HostError(
            f"{Size(most_bytes)} are needed for gradients in {runs}, which has {free / 1e9:.1f} "
            "GB of free space.",
            hint="Lower --reuse, or choose another folder with --runs.",
        )
    folder.mkdir()
    try:
        yield ReusedGradients(folder, most_bytes, side_by_side)
    finally:
        shutil.rmtree(folder)
