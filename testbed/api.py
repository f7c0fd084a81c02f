"""What `import testbed` offers: the verbs of the command line as functions.

    run = testbed.simulate("first.yaml", settings={"workers.count": 16})
    run.evaluations.plot("time_seconds", "top1")

They take the path of a scenario or a mapping, return what the run has left, show how it goes if
standard output is a terminal, and raise the errors of ``testbed.errors``.
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
from testbed.events.sink import Sink
from testbed.host.cuda import has_cuda
from testbed.reports.compare import Comparison, compared
from testbed.reports.exports.mlflow import write_mlflow
from testbed.reports.exports.tables import write_tables
from testbed.reports.exports.tensorboard import write_tensorboard
from testbed.reports.frames import Run
from testbed.reports.remake import remake
from testbed.run import up as carry_out
from testbed.run.prepare import RunRequest
from testbed.run.simulated import up_simulated
from testbed.scenario import Override, Scenario, load, load_text
from testbed.scenario.dump import dump_data
from testbed.scenario.load import placed
from testbed.scenario.parse import parse_document
from testbed.scenario.source import find_scenario
from testbed.studies import Study, load_study, read_study
from testbed.studies.sweep import Swept
from testbed.studies.sweep import sweep as carry_out_study
from testbed.telemetry.folder import RunFolder
from testbed.telemetry.registry import Registry, list_runs
from testbed.telemetry.wall import WALL
from testbed.values.units import Size

FILE, STUDY = "scenario", "study"
"""What a scenario and a study that are no files are called in messages."""


def up(
    scenario: str | Path | Mapping[str, Any],
    *,
    settings: Mapping[str, Any] | None = None,
    runtime: str | None = None,
    name: str | None = None,
    runs: str | Path = "runs",
    keep: bool = False,
) -> Run:
    """Run a scenario: bring its containers up, train, measure, tear down.

    Args:
        scenario: path of the file, or what would stand in it; then the user's own files are
            relative to the current folder.
        settings: values that replace the scenario's, by their paths, such as
            ``{"workers.count": 16}``.
        runtime: short for the setting of that name.
        name: the run's; by default made from the scenario's.
        runs: where the run's folder is made.
        keep: whether the containers stay until ``testbed down``.

    Returns:
        The run, which has ended; ``run.verdict`` says whether its measurements can be trusted.

    Raises:
        ScenarioError: the scenario, a setting or the name is wrong; nothing was made.
        TestbedError: it could not be begun, or failed; then its folder says so too.
        KeyboardInterrupt: it was interrupted, and torn down.
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
    """Run what a study needs and is not there yet.

    Args:
        study: path of its file, or what would stand in it; then the scenario's file is relative to
            the current folder.
        only: a figure, a table or a level, for what that needs alone.
        scale: makes runs so many times as long.
        runs: the folder of runs.
        jobs: how many simulated runs go on side by side; by default one a CPU.
        reuse: how much of the gradients is kept on disk meanwhile, like ``20GB``, for simulated
            runs that train as another did.

    Returns:
        The study and what is there of it; ``report()`` makes its tables and figures.

    Raises:
        ScenarioError: the study is wrong, or the folder holds another's results.
        TestbedError: another sweep is at work there.
        HostError: the disk has less room than ``reuse``.
        ValueError: ``reuse`` is no size.
        KeyboardInterrupt: it was interrupted; what went on was ended first.
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
        second: likewise.
        accuracy: also compare what it took to reach this top-1 accuracy, such as 0.9.

    Returns:
        What differs between their scenarios, and a table of measures.

    Raises:
        RunNotFound: there is no such run.
        NodeError: one has not applied any update.
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
        format: which one.
        runs: runs, their names, or the paths of their folders.
        out: the folder to write into; of ``prometheus`` the file.
        force: whether what is there of these runs is written over.

    Raises:
        RunNotFound: there is no such run.
        ScenarioError: ``out`` cannot be made, or holds one of these runs.
        HostError: the tool's library is not installed.
        ValueError: there is no such format, or no run.
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
    folders_of_runs = format != "mlflow"  # which is one database
    write_runs(folders, Path(out), writers[format], force=force, folders=folders_of_runs)


def _run(run: Run | str | Path) -> Run:
    return run if isinstance(run, Run) else Run(run)


def _tell() -> Callable[[str], None]:
    """Who is told how a sweep gets on: a terminal, a notebook, or nobody."""
    console = Console()
    if console.is_jupyter:
        return Lines().tell
    return console.out if console.is_terminal else lambda text: None


def runs(folder: str | Path = "runs") -> list[Run]:
    """The runs in a folder and those made anywhere else, by name: what `testbed ps --all` lists."""
    registry = Registry.of_user(os.environ, Path.home())
    return [Run(path) for path in list_runs(Path(folder), registry)]


@dataclass(frozen=True)
class _Caller:
    """Whoever has called; see testbed.run.audience.Audience."""

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
    """Where a problem stands that shows when the scenario is at work, if it stands in a file."""
    if isinstance(scenario, Mapping):
        return nullcontext()
    return placed(scenario, _overrides(settings))


def _loaded_study(study: str | Path | Mapping[str, Any], scale: float) -> Study:
    if not isinstance(study, Mapping):
        return load_study(study, scale=scale, has_cuda=has_cuda)
    with _without_lines(STUDY):
        document = parse_document(dump_data(study, STUDY), STUDY)
        return read_study(document, Path(STUDY), scale=scale, has_cuda=has_cuda)


@contextmanager
def _without_lines(file: str) -> Iterator[None]:
    """Problems inside name no lines of a text that nobody has seen."""
    try:
        yield
    except ScenarioError as error:
        told = [replace(one, line=0) if one.file == file else one for one in error.problems]
        raise ScenarioError(told) from None


@contextmanager
def _threads_restored() -> Iterator[None]:
    """A simulation sets torch to one thread; its caller may go on computing."""
    import torch

    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)
