"""Runs exported to the formats of other tools, read back by those tools."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from testbed.cli import main
from testbed.reports.frames import Run

MLFLOW = "MLflow is not installed: pip install 'edge-testbed[mlflow]'"
FIXTURES = Path(__file__).parent / "fixtures"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A private working folder with copies of the committed runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    shutil.copytree(FIXTURES, tmp_path / "runs")
    return tmp_path


def test_csv(here: Path) -> None:
    assert main(["export", "csv", "live", "simulated", "--out", "out"]) == 0
    assert sorted(path.name for path in (here / "out").iterdir()) == ["live", "simulated"]
    run = Run(here / "runs/live")
    updates = pd.read_csv(here / "out/live/updates.csv")
    assert updates["payload_up_bytes"].sum() == run.updates["payload_up_bytes"].sum()
    assert list(updates["node"]) == list(run.updates["node"])
    assert len(pd.read_csv(here / "out/live/events.csv")) == len(run.events)
    summary = pd.read_csv(here / "out/live/summary.csv", index_col="path")["value"]
    assert json.loads(summary["accuracy.best"]) == run.summary["accuracy"]["best"]


def test_tensorboard(here: Path) -> None:
    accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator",
        reason="TensorBoard is not installed: pip install 'edge-testbed[tensorboard]'",
    )
    assert main(["export", "tensorboard", "live", "--out", "out"]) == 0
    found = accumulator.EventAccumulator(str(here / "out/live"), {"scalars": 0, "tensors": 0})
    found.Reload()
    run = Run(here / "runs/live")
    during = run.evaluations[~run.evaluations["final"]]
    accuracies = found.Scalars("accuracy/top1")
    assert [one.step for one in accuracies] == list(during["version"])
    assert [one.value for one in accuracies] == pytest.approx(list(during["top1"]))
    counted = sum(
        len(found.Scalars(tag)) for tag in found.Tags()["scalars"] if tag.startswith("staleness/")
    )
    assert counted == len(run.updates)
    assert "scenario/text_summary" in found.Tags()["tensors"]


@pytest.fixture
def mlflow() -> Any:
    """MLflow's own library, with its database requirements."""
    for name in ("sqlalchemy", "alembic"):
        pytest.importorskip(name, reason=MLFLOW)
    return pytest.importorskip("mlflow", reason=MLFLOW)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # raised by MLflow's own imports
def test_mlflow(here: Path, mlflow: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "mlflow", "simulated", "live", "--out", "out"]) == 0
    client = mlflow.MlflowClient(f"sqlite:///{here}/out/mlflow.db")
    run = Run(here / "runs/live")
    (experiment,) = client.search_experiments(filter_string=f"name = '{run.state.scenario}'")

    def there() -> dict[str, Any]:
        found = client.search_runs([experiment.experiment_id])
        return {one.info.run_name: one for one in found}

    found = there()
    assert sorted(found) == ["live", "simulated"]
    identity = found["live"].info.run_id
    during = run.evaluations[~run.evaluations["final"]]
    accuracies = client.get_metric_history(identity, "accuracy/top1")
    assert [one.step for one in accuracies] == list(during["version"])
    assert [one.value for one in accuracies] == list(during["top1"])
    data = found["live"].data
    assert data.metrics["summary/ingress.payload_bytes"] == run.summary["ingress"]["payload_bytes"]
    assert data.params["workers.classes.slow.link.up.rate"] == "1mbit"
    assert found["live"].info.status == "FINISHED"
    copied = Path(client.download_artifacts(identity, "summary.json", str(here)))
    assert json.loads(copied.read_text()) == run.summary

    # Existing runs are only replaced on request; the earlier run is deleted, and can be restored.
    assert main(["export", "mlflow", "live", "--out", "out"]) == 2
    assert "found live in out" in capsys.readouterr().err
    assert there()["live"].info.run_id == identity
    assert main(["export", "mlflow", "live", "--out", "out", "--force"]) == 0
    assert sorted(there()) == ["live", "simulated"]
    assert there()["live"].info.run_id != identity
    assert client.get_run(identity).info.lifecycle_stage == "deleted"


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_a_file_that_is_not_an_mlflow_database(
    here: Path, mlflow: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "out").mkdir()
    (here / "out/mlflow.db").write_text("mine, and longer than a header of SQLite's would be " * 9)
    before = (here / "out/mlflow.db").read_bytes()
    assert main(["export", "mlflow", "live", "--out", "out"]) == 4
    assert "out/mlflow.db" in capsys.readouterr().err
    assert (here / "out/mlflow.db").read_bytes() == before
    assert [path.name for path in (here / "out").iterdir()] == ["mlflow.db"]


def test_existing_files_are_kept_unless_replacement_is_requested(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "out").mkdir()
    (here / "out/thesis.tex").touch()
    assert main(["export", "csv", "live", "--out", "out"]) == 0
    (here / "out/live/updates.csv").write_text("mine")
    assert main(["export", "csv", "simulated", "live", "--out", "out"]) == 2
    assert "--force" in capsys.readouterr().err
    assert (here / "out/live/updates.csv").read_text() == "mine"
    assert main(["export", "csv", "simulated", "live", "--out", "out", "--force"]) == 0
    names = sorted(path.name for path in (here / "out").iterdir())
    assert names == ["live", "simulated", "thesis.tex"]
    assert (here / "out/live/updates.csv").read_text() != "mine"


def test_nothing_is_written_for_a_damaged_run(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = here / "runs/live/evaluations.csv"
    damaged.write_text("a,b\n1,2\n")
    assert main(["export", "csv", "simulated", "live", "--out", "out"]) == 4
    assert str(damaged) in capsys.readouterr().err
    assert not (here / "out").exists()
    (here / "runs/live/run.json").write_text('{"format": 2}')
    assert main(["export", "csv", "simulated", "live", "--out", "out"]) == 1
    assert "format 2" in capsys.readouterr().err
    assert not (here / "out").exists()


@pytest.mark.parametrize(
    "words",
    [
        "export csv live simulated --out out",
        "export prometheus simulated --out out",
        "report live simulated",
        "compare live simulated",
    ],
)
def test_a_finished_run_that_lost_its_updates_is_refused(
    here: Path, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    lost = here / "runs/simulated/updates/part-0000.parquet"
    lost.unlink()
    assert main(words.split()) == 4
    assert f"{lost} is missing: found 0 updates, expected " in capsys.readouterr().err
    assert not (here / "out").exists()


def test_two_runs_of_the_same_name(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(here / "runs/live", here / "others/live")
    assert main(["export", "csv", "./runs/live", "./others/live", "--out", "out"]) == 2
    assert "several runs with the name live" in capsys.readouterr().err
    assert main(["export", "csv", "live", "--out", "nowhere/out"]) == 2
    assert "mkdir -p nowhere" in capsys.readouterr().err


def test_a_file_in_the_place_of_a_folder(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "file").touch()
    for out in ("file/out", "file/more/out"):
        assert main(["export", "csv", "live", "--out", out]) == 2
        told = capsys.readouterr().err
        assert "file is not a folder." in told
        assert "mkdir" not in told


@pytest.mark.parametrize(
    "arguments",
    [
        ["export", "csv", "live", "--out", "/proc/x"],
        ["export", "prometheus", "live", "--out", "/proc/x"],
        ["report", "live", "--html", "/proc/x"],
        ["report", "live", "--figures", "/proc/x"],
    ],
)
def test_a_folder_that_takes_no_files(
    here: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert main(arguments) == 3
    told = capsys.readouterr().err
    assert told.startswith("/proc/x: it cannot be written: ")
    assert "Choose another path." in told
