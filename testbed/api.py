"""The public Python API: the commands of the command line as functions.

    run = testbed.simulate("first.yaml", settings={"workers.count": 16})
    run.evaluations.plot("time_seconds", "top1")

They take the path of a scenario or a mapping, return the finished run, show progress if standard
output is a terminal, and raise the errors of ``testbed.errors``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal

from testbed.errors import Problem, ScenarioError, TestbedError
from testbed.host.cuda import has_cuda
from testbed.host.requirements import require_linux
from testbed.plan.written import read_plan
from testbed.reports.any_run import AnyRun, open_run
from testbed.reports.compare import Comparison, compared
from testbed.reports.console import Console, NotebookLines
from testbed.reports.exports import check_new, write_runs, write_tables
from testbed.reports.exports.mlflow import write_mlflow
from testbed.reports.exports.tensorboard import write_tensorboard
from testbed.reports.frames import Run
from testbed.reports.live import LiveDisplay
from testbed.reports.live_workload import display_of
from testbed.reports.metrics.openmetrics import write_openmetrics
from testbed.reports.metrics.replay import Replay
from testbed.run.prepare import Request, check_run_name
from testbed.run.simulated import carry_out
from testbed.run.up import RunListener
from testbed.scenario import Override, Scenario
from testbed.scenario.dump import dump_data
from testbed.scenario.load import with_source_lines
from testbed.scenario.load_workload import load_any, load_any_document
from testbed.scenario.parse import parse_document
from testbed.scenario.scalars import on_one_line
from testbed.scenario.source import find_scenario
from testbed.scenario.workload import Workload
from testbed.studies import Study, load_study, read_study
from testbed.studies.sweep import Swept
from testbed.studies.sweep import sweep as carry_out_study
from testbed.telemetry.files import replacing, writing
from testbed.telemetry.folder import RunFolder
from testbed.telemetry.registry import Registry, list_runs
from testbed.telemetry.sink import Sink
from testbed.values.units import Size

FORMATS = ("csv", "tensorboard", "mlflow", "prometheus")
FILE, STUDY = "scenario", "study"
"""The file names that messages show for a scenario or study given as a mapping."""


def up(
    scenario: str | Path | Mapping[str, Any],
    *,
    settings: Mapping[str, Any] | None = None,
    runtime: str | None = None,
    name: str | None = None,
    runs: str | Path = "runs",
    keep: bool = False,
) -> Any:
    """Run a scenario: start its containers, train or run its programs, measure, tear down.

    Args:
        scenario: path of the file, or its content as a mapping; paths of the user's own files are
            then relative to the current folder.
        settings: values that replace the scenario's, by their paths, such as
            ``{"workers.count": 16}``.
        runtime: shorthand for the ``runtime`` setting.
        name: name of the run; by default derived from the scenario's.
        runs: the folder in which to create the run's folder.
        keep: whether to keep the containers until ``testbed down``.

    Returns:
        The finished run, a ``Run`` or, of a workload, a ``WorkloadRun``; ``run.verdict`` says
        whether its measurements can be trusted.

    Raises:
        ScenarioError: the scenario, a setting or the name is invalid; nothing was created.
        TestbedError: the run could not start, or failed; a failure is recorded in its folder.
        KeyboardInterrupt: the run was interrupted and torn down.
    """
    require_linux("up")
    if not isinstance(settings, Mapping | None):
        raise _refusal("settings", settings, 'a mapping, like {"workers.count": 3}')
    asked = dict(settings or {}) | ({} if runtime is None else {"runtime": runtime})
    check_run_name(name)
    beside = Path() if isinstance(scenario, Mapping) else find_scenario(Path(scenario)).parent
    loaded = _loaded(scenario, asked)
    display = display_of(loaded)
    # elsewhere than on a terminal, nothing is shown
    caller = _Caller(display if display.console.is_terminal else Sink())
    request = Request.of(loaded, beside=beside, runs=Path(runs), name=name)
    restored = _threads_restored() if loaded.simulated else nullcontext()
    with _placed(scenario, asked), restored:
        carry_out(request, caller, keep=keep)
    return open_run(caller.folders[-1].path)


def simulate(
    scenario: str | Path | Mapping[str, Any],
    *,
    settings: Mapping[str, Any] | None = None,
    name: str | None = None,
    runs: str | Path = "runs",
) -> Run:
    """Run a scenario on a virtual clock, without containers; see ``up``."""
    run = up(scenario, settings=settings, runtime="simulated", name=name, runs=runs)
    assert isinstance(run, Run), "a simulation runs no programs"
    return run


def sweep(
    study: str | Path | Mapping[str, Any],
    *,
    only: str | None = None,
    scale: float = 1.0,
    runs: str | Path = "runs",
    jobs: int | None = None,
    reuse: str = "0B",
    ray: str | None = None,
) -> Swept:
    """Run the missing runs of a study.

    Args:
        study: path of its file, or its content as a mapping; the scenario's path is then relative
            to the current folder.
        only: a figure, a table or a level; run only what it needs.
        scale: the factor by which to multiply the length of runs.
        runs: the folder of runs.
        jobs: how many simulated runs to execute in parallel; by default one per CPU.
        reuse: how much disk to use for cached gradients during the sweep, such as ``20GB``, for
            simulated runs that repeat the training of another run.
        ray: address of a Ray cluster that executes the simulated runs, such as ``auto``.

    Returns:
        The study and its available runs; ``report()`` builds its tables and figures.

    Raises:
        ScenarioError: the study, ``scale`` or ``jobs`` is invalid, or the folder holds the results
            of another study.
        TestbedError: another sweep is running in that folder.
        HostError: less disk space is free than ``reuse`` asks for, or there is no such Ray cluster,
            or one of its nodes cannot execute runs.
        ValueError: ``reuse`` is not a size, or ``ray`` is given as well.
        KeyboardInterrupt: the sweep was interrupted; its active runs were stopped first.
    """
    reuse_bytes = int(Size.parse(reuse))
    return sweep_showing(_tell(), study, only, scale, Path(runs), jobs, reuse_bytes, ray)


def sweep_showing(
    tell: Callable[[str], None],
    study: str | Path | Mapping[str, Any],
    only: str | None,
    scale: float,
    runs: Path,
    jobs: int | None,
    reuse_bytes: int,
    ray: str | None,
) -> Swept:
    """Do what ``sweep`` does; ``tell`` receives a line for every run that starts or ends."""
    require_linux("sweep")
    _check_positive("scale", scale, most=1000)
    if jobs is not None:
        _check_positive("jobs", jobs, whole=True)
    whole = _loaded_study(study, scale)
    return carry_out_study(
        whole.only(only) if only else whole,
        runs=runs,
        environment=os.environ,
        home=Path.home(),
        jobs=jobs,
        reuse_bytes=reuse_bytes,
        ray=ray,
        argv=tuple(sys.argv),
        tell=tell,
    )


def compare(
    first: AnyRun | str | Path, second: AnyRun | str | Path, *, accuracy: float | None = None
) -> Comparison:
    """Compare two runs, such as a live and a simulated run of one scenario.

    Args:
        first: a run, its name, or the path of its folder.
        second: as ``first``.
        accuracy: also compare the cost of reaching this top-1 accuracy, such as 0.9.

    Returns:
        The differences between their scenarios, and a table of measures.

    Raises:
        RunNotFound: a run does not exist.
        NodeError: a run has not applied any update, or only one of them is of a workload.
        ScenarioError: ``accuracy`` is not above 0 and at most 1.
    """
    if accuracy is not None:
        _check_positive("accuracy", accuracy, most=1)
    return compared(_run(first), _run(second), accuracy=accuracy)


def export(
    format: Literal["csv", "tensorboard", "mlflow", "prometheus"],
    *runs: AnyRun | str | Path,
    out: str | Path,
    force: bool = False,
) -> None:
    """Write runs in the format of another tool.

    Args:
        format: the name of the format.
        runs: runs, their names, or the paths of their folders.
        out: the folder to write to; for ``prometheus`` the file.
        force: whether to overwrite existing output of these runs.

    Raises:
        RunNotFound: a run does not exist.
        ScenarioError: ``out`` cannot be created, or holds one of these runs; or what was given is
            not a run.
        HostError: the tool's library is not installed.
        ValueError: the format is unknown, or no run was given.
    """
    found = list({run.folder.path: run for run in map(_run, runs)}.values())
    if format not in FORMATS or not found:
        raise ValueError(f"found {format!r} of {len(found)} runs, expected {', '.join(FORMATS)}")
    if format == "prometheus":
        write_metrics([run.folder.path for run in found], Path(out), force=force)
        return
    writers: dict[str, Callable[[Sequence[AnyRun], Path], None]] = {
        "csv": write_tables,
        "tensorboard": write_tensorboard,
        "mlflow": partial(write_mlflow, force=force),
    }
    folders_of_runs = format != "mlflow"  # mlflow writes a single database
    write_runs(found, Path(out), writers[format], force=force, folders=folders_of_runs)


def write_metrics(
    runs: Sequence[Path],
    out: Path,
    *,
    force: bool,
    end: float | None = None,
    per_worker: bool = False,
) -> int:
    """Write runs, given by their folders, to ``out``; return the number of samples.

    ``end``: when the longest ends, seconds since 1970; None keeps the actual times.

    Raises:
        ScenarioError: ``out`` exists, or its parent folder does not.
        TestbedError: a run has not ended, or is damaged.
        HostError: ``out`` cannot be written.
    """
    check_new("--out", out, force=force)
    found = [open_run(folder) for folder in runs]
    for one in found:
        if one.alive:
            raise TestbedError(
                f"{one.name} is still running.",
                hint="`testbed up --metrics` serves the metrics of a running run. To export "
                f"them, wait until it has ended: testbed wait {one.name}",
            )
    replays = [Replay(one, read_plan(one.folder), per_worker=per_worker) for one in found]
    with writing(out), replacing(out) as fresh, fresh.open("w", encoding="utf-8") as file:
        return write_openmetrics(file, replays, end=end)


def _run(run: AnyRun | str | Path) -> AnyRun:
    if isinstance(run, str | Path):
        return open_run(run)
    if not isinstance(run, AnyRun):
        raise _refusal("run", run, "a run, its name or its folder, each as an argument of its own")
    return run


def _check_positive(name: str, value: Any, *, most: float = inf, whole: bool = False) -> None:
    """Refuse an argument as the command line does its option.

    Raises:
        ScenarioError: it is not a number above 0 and at most ``most``, or not a ``whole`` one.
    """
    valid = isinstance(value, Integral if whole else Real) and not isinstance(value, bool)
    if not valid or not 0 < value <= most:
        limit = "" if most == inf else f" and at most {most:,}"
        kind = "a whole number" if whole else "a number"
        raise _refusal(name, value, f"{kind} above 0{limit}")


def _refusal(name: str, value: object, expected: str) -> ScenarioError:
    return ScenarioError([Problem(name, 0, "", on_one_line(repr(value), 80), expected)])


def _tell() -> Callable[[str], None]:
    """Return the progress printer of a sweep: for a terminal, for a notebook, or silent."""
    console = Console()
    if console.is_jupyter:
        return NotebookLines().tell
    return console.out if console.is_terminal else lambda text: None


def runs(folder: str | Path = "runs") -> list[Any]:
    """List the runs in a folder and those created elsewhere, by name, as `testbed ps --all`.

    Each is a ``Run`` or, of a workload, a ``WorkloadRun``.
    """
    registry = Registry.of_user(os.environ, Path.home())
    return [open_run(path) for path in list_runs(Path(folder), registry)]


@dataclass
class _Caller(RunListener):
    """The caller of the API as the listener of a run; ``sink`` is a display on a terminal."""

    folders: list[RunFolder] = field(default_factory=list)

    def phase(self, text: str) -> None:
        if isinstance(self.sink, LiveDisplay):
            self.sink.phase(text)

    def say(self, text: str) -> None:
        if isinstance(self.sink, LiveDisplay):
            self.sink.notice(text)

    def conclude(self, folder: RunFolder, *, torn_down: bool) -> bool:
        self.folders.append(folder)
        try:
            return super().conclude(folder, torn_down=torn_down)
        finally:
            self.sink.close()


def _loaded(
    scenario: str | Path | Mapping[str, Any], settings: Mapping[str, Any]
) -> Scenario | Workload:
    overrides = _overrides(settings)
    if not isinstance(scenario, Mapping):
        return load_any(scenario, overrides=overrides, has_cuda=has_cuda)
    document = parse_document(dump_data(scenario, FILE), FILE)
    with _without_lines(FILE):
        return load_any_document(document, Path, overrides=overrides, has_cuda=has_cuda)


def _overrides(settings: Mapping[str, Any]) -> list[Override]:
    return [Override.of(path, value) for path, value in settings.items()]


def _placed(
    scenario: str | Path | Mapping[str, Any], settings: Mapping[str, Any]
) -> AbstractContextManager[None]:
    """Add file and line to problems that show during the run, if the scenario is a file."""
    if isinstance(scenario, Mapping):
        return nullcontext()
    return with_source_lines(scenario, _overrides(settings))


def _loaded_study(study: str | Path | Mapping[str, Any], scale: float) -> Study:
    if not isinstance(study, Mapping):
        return load_study(study, scale=scale, has_cuda=has_cuda)
    with _without_lines(STUDY):
        document = parse_document(dump_data(study, STUDY), STUDY)
        return read_study(document, Path(STUDY), scale=scale, has_cuda=has_cuda)


@contextmanager
def _without_lines(file: str) -> Iterator[None]:
    """Drop line numbers from problems in this block: the user never saw the generated text."""
    try:
        yield
    except ScenarioError as error:
        told = [replace(one, line=0) if one.file == file else one for one in error.problems]
        raise ScenarioError(told) from None


@contextmanager
def _threads_restored() -> Iterator[None]:
    """Restore torch's thread count on exit, which a simulation sets to one."""
    import torch

    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)
