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
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from testbed.cli import export_prometheus
from testbed.cli.console import Console
from testbed.cli.export import FORMATS
from testbed.cli.host import require_linux
from testbed.cli.live import LiveDisplay, Progress
from testbed.cli.notebook import Lines
from testbed.cli.options import check_name, write_runs
from testbed.errors import ScenarioError
from testbed.host.cuda import has_cuda
from testbed.reports.compare import Comparison, compared
from testbed.reports.exports import write_tables
from testbed.reports.exports.mlflow import write_mlflow
from testbed.reports.exports.tensorboard import write_tensorboard
from testbed.reports.frames import Run
from testbed.reports.remake import remake
from testbed.run import up as carry_out
from testbed.run.prepare import RunRequest
from testbed.run.simulated import up_simulated
from testbed.scenario import Override, Scenario, load, load_text
from testbed.scenario.dump import dump_data
from testbed.scenario.load import with_source_lines
from testbed.scenario.parse import parse_document
from testbed.scenario.source import find_scenario
from testbed.studies import Study, load_study, read_study
from testbed.studies.sweep import Swept
from testbed.studies.sweep import sweep as carry_out_study
from testbed.telemetry.folder import RunFolder
from testbed.telemetry.registry import Registry, list_runs
from testbed.telemetry.sink import Sink
from testbed.telemetry.wall import WALL
from testbed.values.units import Size

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
) -> Run:
    """Run a scenario: start its containers, train, measure, tear down.

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
        The finished run; ``run.verdict`` says whether its measurements can be trusted.

    Raises:
        ScenarioError: the scenario, a setting or the name is invalid; nothing was created.
        TestbedError: the run could not start, or failed; a failure is recorded in its folder.
        KeyboardInterrupt: the run was interrupted and torn down.
    """
    require_linux("up")
    asked = dict(settings or {}) | ({} if runtime is None else {"runtime": runtime})
    request = _request(scenario, asked, name=name, runs=Path(runs))
    caller = _Caller.of(request.scenario)
    with _placed(scenario, asked):
        if request.scenario.simulated:
            with _threads_restored():
                up_simulated(request, caller)
        else:
            carry_out.up(request, caller, keep=keep)
    return Run(caller.folders[-1].path)


def simulate(
    scenario: str | Path | Mapping[str, Any],
    *,
    settings: Mapping[str, Any] | None = None,
    name: str | None = None,
    runs: str | Path = "runs",
) -> Run:
    """Run a scenario on a virtual clock, without containers; see ``up``."""
    return up(scenario, settings=settings, runtime="simulated", name=name, runs=runs)


def sweep(
    study: str | Path | Mapping[str, Any],
    *,
    only: str | None = None,
    scale: float = 1.0,
    runs: str | Path = "runs",
    jobs: int | None = None,
    reuse: str = "0B",
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

    Returns:
        The study and its available runs; ``report()`` builds its tables and figures.

    Raises:
        ScenarioError: the study is invalid, or the folder holds the results of another study.
        TestbedError: another sweep is running in that folder.
        HostError: less disk space is free than ``reuse`` asks for.
        ValueError: ``reuse`` is not a size.
        KeyboardInterrupt: the sweep was interrupted; its active runs were stopped first.
    """
    require_linux("sweep")
    whole = _loaded_study(study, scale)
    return carry_out_study(
        whole.only(only) if only else whole,
        runs=Path(runs),
        environment=os.environ,
        home=Path.home(),
        jobs=jobs,
        reuse_bytes=int(Size.parse(reuse)),
        argv=tuple(sys.argv),
        tell=_tell(),
    )


def compare(
    first: Run | str | Path, second: Run | str | Path, *, accuracy: float | None = None
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
        NodeError: a run has not applied any update.
    """
    return compared(_run(first), _run(second), accuracy=accuracy)


def export(
    format: Literal["csv", "tensorboard", "mlflow", "prometheus"],
    *runs: Run | str | Path,
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
        ScenarioError: ``out`` cannot be created, or holds one of these runs.
        HostError: the tool's library is not installed.
        ValueError: the format is unknown, or no run was given.
    """
    folders = list(dict.fromkeys(_run(one).folder.path for one in runs))
    if format not in FORMATS or not folders:
        raise ValueError(f"found {format!r} of {len(folders)} runs, expected {', '.join(FORMATS)}")
    if format == "prometheus":
        export_prometheus.write(folders, Path(out), force=force, at="run", per_worker=False)
        return
    writers: dict[str, Callable[[Sequence[Run], Path], None]] = {
        "csv": write_tables,
        "tensorboard": write_tensorboard,
        "mlflow": partial(write_mlflow, force=force),
    }
    folders_of_runs = format != "mlflow"  # mlflow writes a single database
    write_runs(folders, Path(out), writers[format], force=force, folders=folders_of_runs)


def _run(run: Run | str | Path) -> Run:
    return run if isinstance(run, Run) else Run(run)


def _tell() -> Callable[[str], None]:
    """Return the progress printer of a sweep: for a terminal, for a notebook, or silent."""
    console = Console()
    if console.is_jupyter:
        return Lines().tell
    return console.out if console.is_terminal else lambda text: None


def runs(folder: str | Path = "runs") -> list[Run]:
    """List the runs in a folder and those created elsewhere, by name, as `testbed ps --all`."""
    registry = Registry.of_user(os.environ, Path.home())
    return [Run(path) for path in list_runs(Path(folder), registry)]


@dataclass(frozen=True)
class _Caller:
    """The caller of the API as the audience of a run; see testbed.run.listener.RunListener."""

    display: LiveDisplay | None
    folders: list[RunFolder]

    @classmethod
    def of(cls, scenario: Scenario) -> _Caller:
        console, stop = Console(), scenario.stop
        progress = Progress(stop.updates, stop.time)
        return cls(LiveDisplay(console, progress) if console.is_terminal else None, [])

    @property
    def sink(self) -> Sink:
        return self.display or Sink()

    def phase(self, text: str) -> None:
        if self.display is not None:
            self.display.phase(text)

    def say(self, text: str) -> None:
        if self.display is not None:
            self.display.notice(text)

    def conclude(self, folder: RunFolder, *, torn_down: bool) -> bool:
        self.folders.append(folder)
        try:
            report = remake(folder.path)
        finally:
            self.sink.close()
        return bool(report.summary["verdict"]["valid"])


def _request(
    scenario: str | Path | Mapping[str, Any],
    settings: Mapping[str, Any],
    *,
    name: str | None,
    runs: Path,
) -> RunRequest:
    check_name(name)
    return RunRequest(
        scenario=_loaded(scenario, settings),
        beside=Path() if isinstance(scenario, Mapping) else find_scenario(Path(scenario)).parent,
        runs=runs,
        name=name,
        argv=tuple(sys.argv),
        environment=os.environ,
        home=Path.home(),
        now=WALL.read(),
    )


def _loaded(scenario: str | Path | Mapping[str, Any], settings: Mapping[str, Any]) -> Scenario:
    overrides = _overrides(settings)
    if not isinstance(scenario, Mapping):
        return load(scenario, overrides=overrides, has_cuda=has_cuda)
    text = dump_data(scenario, FILE)
    with _without_lines(FILE):
        return load_text(
            text,
            file=FILE,
            locate=Path,
            overrides=overrides,
            own_code=True,
            has_cuda=has_cuda,
        )


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
