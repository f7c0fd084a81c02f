"""``testbed.up`` and related functions: arguments, results, output and errors."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest
import torch
from nbclient import NotebookClient

import testbed
from testbed.cli import main
from testbed.errors import RunNotFound, ScenarioError, TestbedError
from testbed.values.units import Duration

SCENARIO: dict[str, Any] = {
    "name": "tiny",
    "algorithm": {"asgd": {"learning_rate": np.float64(0.1)}},
    "model": "digits-cnn",
    "dataset": {"digits": None},
    "workers": {"count": np.int64(2), "classes": {"fast": {"speed": Duration(0.02)}}},
    "stop": {"updates": 40},
    "evaluate": {"every": 20, "images": 100},
}

TEXT = """\
name: tiny
algorithm: {asgd: {learning_rate: 0.1}}
model: digits-cnn
dataset: {digits: null}
workers: {count: 2, classes: {fast: {speed: 20ms}}}
stop: {updates: 40}
evaluate: {every: 20, images: 100}
"""

NETWORK = """\
from torch import nn

class Net(nn.Module):
    def __init__(self, image_shape, classes, *, width):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.Linear(width, classes))

    def forward(self, images):
        return self.layers(images)
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with its own registry."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    return tmp_path


@pytest.mark.slow
def test_a_mapping_and_a_file_are_the_same_scenario(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "tiny.yaml").write_text(TEXT)
    threads = torch.get_num_threads()
    one = testbed.simulate(SCENARIO, name="one")
    other = testbed.simulate(folder / "tiny.yaml", name="other", settings={"seed": 0})
    assert torch.get_num_threads() == threads
    assert one.scenario == other.scenario
    assert one.updates.equals(other.updates)
    assert len(one.updates) == 40
    assert list(one.evaluations["version"]) == [0, 20, 40]
    assert one.verdict.valid
    assert one.verdict.reasons == ()
    assert one.summary["updates"]["total"] == 40
    assert one.folder.figure.exists()
    assert [run.name for run in testbed.runs()] == ["one", "other"]
    assert testbed.Run("one").folder == testbed.Run("runs/one").folder == one.folder
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_an_own_network_is_relative_to_the_current_folder(folder: Path) -> None:
    (folder / "net.py").write_text(NETWORK)
    weights = torch.zeros(3, requires_grad=True)
    weights.sum().backward()  # the caller may have used autograd before the run's processes
    model = {"custom": {"file": "net.py", "class": "Net", "width": 3}}
    run = testbed.simulate(SCENARIO | {"model": model}, settings={"model.width": np.int64(5)})
    assert set(run.updates["payload_up_bytes"]) == {4 * (65 * 5 + 6 * 10)}


@pytest.mark.slow
def test_a_network_that_cannot_be_built_fails_the_run(folder: Path) -> None:
    (folder / "net.py").write_text(NETWORK.replace("nn.Linear(width", "nn.Linear(width + 1"))
    model = {"custom": {"file": "net.py", "class": "Net", "width": 3}}
    with pytest.raises(ScenarioError, match=r"net.py:9: model: found Net on images of"):
        testbed.simulate(SCENARIO | {"model": model}, name="broken")
    run = testbed.Run("broken")
    assert (run.state.state, run.state.exit_code) == ("failed", 11)
    assert run.folder.log("ps").read_text().startswith("Traceback (most recent call last)")


@pytest.mark.slow
def test_a_run_may_be_started_in_another_thread(folder: Path) -> None:
    runs: list[testbed.Run] = []
    thread = threading.Thread(target=lambda: runs.append(testbed.simulate(SCENARIO)))
    thread.start()
    thread.join()
    assert runs[0].state.state == "finished"


@pytest.mark.slow
def test_progress_is_shown_on_a_terminal(folder: Path) -> None:
    (folder / "tiny.yaml").write_text(TEXT)
    ours, its = pty.openpty()
    program = "import testbed; testbed.simulate('tiny.yaml', name='shown')"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(Path(testbed.__file__).parents[1])},
        stdout=its,
        stderr=its,
        check=True,
        timeout=60,
    )
    os.close(its)
    shown = os.read(ours, 100_000).decode()
    os.close(ours)
    assert done.returncode == 0
    assert "run shown (simulated)" in shown
    assert "updates" in shown


@pytest.mark.root
@pytest.mark.slow
def test_a_run_with_containers() -> None:
    run = testbed.up(SCENARIO, runtime="native", settings={"paced": False})
    assert run.state.state == "finished"
    assert len(run.updates) == 40
    assert run.summary["runtime"] == "native"
    assert not run.alive


@pytest.mark.parametrize(
    ("scenario", "settings", "told"),
    [
        (SCENARIO | {"stop": {"updates": 0}}, {}, r"^scenario: stop.updates: found 0, expected"),
        (SCENARIO | {"seed": object()}, {}, r"^scenario: found a value of type object, expected"),
        (SCENARIO, {"workers.cont": 3}, r"^setting workers.cont: .* Did you mean count\?"),
        (SCENARIO, {"": 3}, r"^setting : found no path, expected a path, like workers.count"),
        (SCENARIO, {"seed": float("inf")}, r"^setting seed: found .inf, expected a finite number"),
        (SCENARIO, {"model": {"custom": {"file": "no.py", "class": "N"}}}, "found no file 'no.py'"),
        (
            SCENARIO,
            {"workers.batch_size": 10**6},
            r"found 1,000,000, expected at most \d,\d+: the training samples of digits",
        ),
        (SCENARIO, {"workers.count": 5000}, "of 5000 workers without any of the"),
        ("gone.yaml", {}, "gone.yaml: found no such file, expected a scenario file"),
    ],
)
def test_errors_are_raised_and_nothing_is_created(
    scenario: Any, settings: dict[str, Any], told: str, folder: Path
) -> None:
    with pytest.raises(ScenarioError, match=told):
        testbed.simulate(scenario, settings=settings)
    with pytest.raises(ScenarioError, match="expected 1 to 60 letters"):
        testbed.simulate(SCENARIO, name="No name")
    assert list(folder.iterdir()) == []


def test_errors_found_with_the_data_name_the_line_of_the_file(folder: Path) -> None:
    (folder / "tiny.yaml").write_text(TEXT.replace("count: 2", "count: 5000"))
    with pytest.raises(ScenarioError, match=r"^tiny.yaml:4: dataset.partition: found \d+ of 5000"):
        testbed.simulate("tiny.yaml")
    with pytest.raises(ScenarioError, match=r"^setting workers.batch_size: .*found 1,000,000"):
        testbed.simulate("tiny.yaml", settings={"workers.batch_size": 10**6})


@pytest.mark.slow
def test_a_study_from_a_mapping_shares_its_runs_with_a_file(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "tiny.yaml").write_text(f"runtime: simulated\n{TEXT}")
    study = {
        "name": "rates",
        "scenario": "tiny.yaml",
        "vary": {"rate": ["algorithm.learning_rate=0.1", "algorithm.learning_rate=0.01"]},
    }
    part = testbed.sweep(study, only="0.1", jobs=1)
    assert len(part.study.runs) == len(part.found) == 1
    file = folder / "study.yaml"
    file.write_text(json.dumps({**study, "name": "again"}))  # a different file is a different study
    made = {one.folder.name: one.state.created for one in testbed.runs()}
    whole = testbed.sweep(file)
    assert (len(whole.found), whole.failed, whole.invalid) == (2, {}, [])
    assert made.items() < {one.folder.name: one.state.created for one in testbed.runs()}.items()
    assert capfd.readouterr().out == ""
    report = whole.report()
    assert report.text.startswith("# again")
    assert report.results.study.name == "again"
    assert testbed.sweep(study, scale=0.5).found.keys().isdisjoint(whole.found)


def test_errors_in_a_study_are_raised(folder: Path) -> None:
    with pytest.raises(ScenarioError, match=r"^study: vary.rate: .*expected"):
        testbed.sweep({"name": "rates", "scenario": "tiny.yaml", "vary": {"rate": 3}})
    with pytest.raises(ScenarioError, match="found a scenario, expected a study"):
        testbed.sweep(SCENARIO)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (
            lambda: testbed.sweep("s.yaml", scale=-1),
            "scale: found -1, expected a number above 0 and",
        ),
        (
            lambda: testbed.sweep("s.yaml", scale=float("nan")),
            "scale: found nan, expected a number",
        ),
        (
            lambda: testbed.sweep("s.yaml", scale="0.1"),
            "scale: found '0.1', expected a number above",
        ),
        (lambda: testbed.sweep("s.yaml", scale=1001), "above 0 and at most 1,000"),
        (lambda: testbed.sweep("s.yaml", jobs=0), "jobs: found 0, expected a whole number above 0"),
        (
            lambda: testbed.sweep("s.yaml", jobs=1.5),
            "jobs: found 1.5, expected a whole number above",
        ),
        (lambda: testbed.compare("a", "b", accuracy=90), "accuracy: found 90, .* and at most 1$"),
        (
            lambda: testbed.export("csv", ["a"], out="x"),
            r"run: found \['a'\], expected a run, its name",
        ),
        (
            lambda: testbed.up(SCENARIO, settings=["workers.count=3"]),
            "settings: found .* a mapping, ",
        ),
    ],
)
def test_an_invalid_argument_is_refused_as_on_the_command_line(
    call: Any, told: str, folder: Path
) -> None:
    with pytest.raises(ScenarioError, match=told):
        call()
    assert list(folder.iterdir()) == []


def test_a_run_of_the_other_kind() -> None:
    with pytest.raises(TestbedError, match=r"simulated is the run of a training. .*as a Run\."):
        testbed.WorkloadRun(FIXTURES / "simulated")


def test_a_missing_run() -> None:
    assert testbed.runs() == []
    with pytest.raises(RunNotFound, match="There is no run named gone"):
        testbed.Run("gone")


FIXTURES = Path(__file__).parent / "reports" / "fixtures"


def test_two_runs_are_compared_as_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    pair = FIXTURES / "live", FIXTURES / "simulated"
    found = testbed.compare(testbed.Run(pair[0]), pair[1], accuracy=0.5)
    assert main(["compare", *map(str, pair), "--accuracy", "0.5", "--json"]) == 9
    told = json.loads(capsys.readouterr().out)
    assert {path: list(values) for path, values in found.scenario.items()} == told["scenario"]
    assert found.scenario["runtime.name"] == ("native", "simulated")
    assert list(found.measures.index) == [one["measure"] for one in told["measures"]]
    assert list(found.measures["difference"]) == [one["ratio"] for one in told["measures"]]
    assert found.measures.loc["ingress", "first"] == 60 * 13_792


def test_runs_are_exported_as_on_the_command_line() -> None:
    pair = FIXTURES / "live", FIXTURES / "simulated"
    testbed.export("csv", testbed.Run(pair[0]), pair[1], out="mine")
    assert main(["export", "csv", *map(str, pair), "--out", "shell"]) == 0
    names = sorted(path.relative_to("mine") for path in Path("mine").rglob("*.csv"))
    assert names == sorted(path.relative_to("shell") for path in Path("shell").rglob("*.csv"))
    for one in names:
        assert Path("mine", one).read_bytes() == Path("shell", one).read_bytes()
    with pytest.raises(ScenarioError, match="mine/live"):
        testbed.export("csv", pair[0], out="mine")
    testbed.export("csv", pair[0], out="mine", force=True)
    testbed.export("prometheus", pair[1], out="metrics.txt")
    assert main(["export", "prometheus", str(pair[1]), "--out", "shell.txt"]) == 0
    assert Path("metrics.txt").read_bytes() == Path("shell.txt").read_bytes()
    with pytest.raises(ValueError, match="expected csv, tensorboard, mlflow, prometheus"):
        testbed.export("excel", pair[0], out="mine")  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_notebook_shows_a_sweep_in_place_and_its_result(folder: Path) -> None:
    (folder / "tiny.yaml").write_text(f"runtime: simulated\n{TEXT}")
    made: Any = nbformat.v4
    cell = made.new_code_cell(
        "import testbed\n"
        "testbed.sweep({'name': 'rates', 'scenario': 'tiny.yaml', 'vary': {'rate': "
        "['algorithm.learning_rate=0.1', 'algorithm.learning_rate=0.01']}}, jobs=1)"
    )
    notebook = made.new_notebook(cells=[cell])
    where = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=120, resources=where).execute()
    shown, result = notebook.cells[0].outputs
    lines = shown["data"]["text/plain"].splitlines()
    assert lines[0] == "rates: 2 runs, 0 exist already"
    assert [line[:5] for line in lines if line.endswith("starts")] == ["[1/2]", "[2/2]"]
    assert lines[-1].endswith("finished: 40 updates applied")
    expected = "<Swept rates: 2 of 2 runs exist, 0 of them not valid, 0 failed>"
    assert result["data"]["text/plain"] == expected
