"""Export to an MLflow database: one experiment per scenario, with its runs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.errors import DataError, Problem, ScenarioError
from testbed.reports.compare import settings
from testbed.reports.exports import lacks
from testbed.reports.exports.tensorboard import Scalar, scalars_of
from testbed.reports.frames import Run
from testbed.reports.page import leaves

if TYPE_CHECKING:
    from mlflow import MlflowClient

    from testbed.reports.any_run import AnyRun

DATABASE = "mlflow.db"
FILES = "mlflow-files"
METRICS_AT_ONCE, PARAMS_AT_ONCE = 1000, 100
"""MLflow's limits per call."""

STATUS = {"finished": "FINISHED", "failed": "FAILED", "interrupted": "KILLED"}


def write_mlflow(runs: Sequence[AnyRun], out: Path, *, force: bool = False) -> None:
    """Add runs to ``out/mlflow.db``: all of them or, if the export fails, none.

    A run's params are its scenario's values; its metrics are the same curves as TensorBoard's, and
    the numbers of its summary; its artifacts are both files. Earlier runs with the same names are
    deleted as by MLflow: they can be restored.

    Raises:
        HostError: MLflow's library is not installed.
        ScenarioError: runs with these names exist, and ``force`` is not set.
        DataError: the existing file is not a database of this version of MLflow.
        TestbedError: a file of a run is damaged; then nothing is written.
    """
    metrics = [[*scalars_of(run), *_numbers(run)] for run in runs]
    with _database(out) as client:
        earlier = [one for run in runs for one in _named(client, run)]
        if earlier and not force:
            expected, hint = "a database without these runs", "Replace them with --force."
            found = f"{', '.join(run.name for run in runs if _named(client, run))} in {out}"
            raise ScenarioError([Problem("--out", 0, "", found, expected, hint)])
        made: list[str] = []
        try:
            for run, own in zip(runs, metrics, strict=True):
                made.append(_create(client, run, out))
                _write(client, made[-1], run, own)
        except BaseException:
            for one in made:
                client.delete_run(one)
            raise
        for one in earlier:
            client.delete_run(one)


@contextmanager
def _database(out: Path) -> Iterator[MlflowClient]:
    """Open the database of a folder; if the export fails, remove what did not exist before."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # an export must not be reported
    os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")
    try:
        import alembic  # noqa: F401 - MlflowClient asks for it later, with a traceback
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException
        from sqlalchemy.exc import SQLAlchemyError
    except ImportError:
        raise lacks("mlflow", "mlflow") from None
    path = out.absolute() / DATABASE
    fresh = not path.exists()
    out.mkdir(exist_ok=True)
    try:
        try:
            client = MlflowClient(f"sqlite:///{path}")
            client.search_experiments()
        except (MlflowException, SQLAlchemyError) as error:
            raise DataError(
                f"{path} cannot be read as an MLflow database: {str(error).splitlines()[0]}",
                hint="Choose another folder with --out.",
            ) from None
        yield client
    except BaseException:
        if fresh:
            path.unlink(missing_ok=True)
            shutil.rmtree(out / FILES, ignore_errors=True)
            with suppress(OSError):  # it contains other files
                out.rmdir()
        raise


def _named(client: MlflowClient, run: AnyRun) -> list[str]:
    """Return the ids of existing runs with this run's name."""
    experiment = client.get_experiment_by_name(run.state.scenario)
    if experiment is None:
        return []
    named = f"attributes.run_name = '{run.name}'"
    return [one.info.run_id for one in client.search_runs([experiment.experiment_id], named)]


def _create(client: MlflowClient, run: AnyRun, out: Path) -> str:
    experiment = client.get_experiment_by_name(run.state.scenario)
    if experiment is None:
        files = (out / FILES).absolute().as_uri()
        identity = client.create_experiment(run.state.scenario, artifact_location=files)
    else:
        identity = experiment.experiment_id
    began = run.state.started or run.state.created
    made = client.create_run(identity, start_time=_milliseconds(began), run_name=run.name)
    return str(made.info.run_id)


def _write(client: MlflowClient, identity: str, run: AnyRun, metrics: Sequence[Scalar]) -> None:
    from mlflow.entities import Metric, Param

    params = [Param(path, str(value)) for path, value in settings(run).items()]
    for first in range(0, len(params), PARAMS_AT_ONCE):
        client.log_batch(identity, params=params[first : first + PARAMS_AT_ONCE])
    values = [Metric(one.name, one.value, int(one.time * 1000), one.step) for one in metrics]
    for first in range(0, len(values), METRICS_AT_ONCE):
        client.log_batch(identity, metrics=values[first : first + METRICS_AT_ONCE])
    for file in (run.folder.scenario, run.folder.summary):
        if file.exists():
            client.log_artifact(identity, str(file))
    if run.state.ended is not None:
        ended = _milliseconds(run.state.ended)
        client.set_terminated(identity, STATUS[run.state.state], ended)


def _numbers(run: AnyRun) -> Iterator[Scalar]:
    """Yield the numbers of the summary, at the step of the last update or, of a workload, 0."""
    state = run.state
    step = len(run.updates) if isinstance(run, Run) else 0
    moment = _milliseconds(state.ended or state.started or state.created) / 1000
    for path, value in leaves(run.summary):
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield Scalar(f"summary/{path}", step, moment, float(value))


def _milliseconds(moment: str) -> int:
    return round(datetime.fromisoformat(moment).timestamp() * 1000)
