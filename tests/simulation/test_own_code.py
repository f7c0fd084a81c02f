"""The user's own code in a simulation trains, and its errors have a file and a line."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from testbed import Run
from testbed.errors import AlgorithmError, ScenarioError, TestbedError, UserCodeError
from testbed.scenario import Override, dump, load
from testbed.scenario.experiment import Experiment
from testbed.simulation.event_queue import EventQueue
from testbed.simulation.gradients import Reuse
from testbed.simulation.run import record_simulation
from testbed.telemetry.folder import RunFolder

SHIPPED = Path(__file__).parents[2] / "scenarios" / "custom"


def simulated(
    folder: Path,
    data: Path,
    *settings: str,
    broken: tuple[str, str, str] | None,
    reuse: Reuse | None = None,
) -> Run:
    """Simulate the shipped scenario, optionally with some words of one of its files replaced."""
    shutil.copytree(SHIPPED, folder / "custom")
    if broken is not None:
        file, was, becomes = broken
        source = (folder / "custom" / file).read_text(encoding="utf-8")
        assert source.count(was) == 1
        (folder / "custom" / file).write_text(source.replace(was, becomes), encoding="utf-8")
    asked = ["runtime=simulated", "stop.updates=30", *settings]
    scenario = load(
        folder / "custom" / "dc-asgd.yaml", overrides=[Override.parse(text) for text in asked]
    )
    run = RunFolder.create(
        folder, "run", scenario="dc-asgd", text=dump(scenario), classes=["any"] * 6, now=0.0
    )
    shutil.copytree(folder / "custom", run.path / "custom")
    experiment = Experiment.open(run.path, data=data)
    record_simulation(experiment, run, events=EventQueue(), reuse=reuse)
    return Run(run.path)


def test_an_own_algorithm_and_network(tmp_path: Path, digits: Path) -> None:
    run = simulated(tmp_path, digits, "model.width=5", broken=None)
    parameters = 64 * 5 + 5 + 5 * 10 + 10
    assert len(run.updates) == 30
    assert set(run.updates["payload_up_bytes"]) == {4 * parameters}
    assert run.updates["staleness"].max() > 0
    assert run.evaluations["top1"].iloc[-1] > run.evaluations["top1"].iloc[0]


def test_its_gradients_are_not_reused_by_other_runs(tmp_path: Path, digits: Path) -> None:
    """They may draw random numbers, or count their calls."""
    reuse = Reuse(tmp_path / "gradients", "run", 10**9)
    simulated(tmp_path, digits, broken=None, reuse=reuse)
    assert not reuse.folder.exists()


@pytest.mark.parametrize(
    ("broken", "node", "told"),
    [
        (
            ("dc_asgd.py", "gradient.copy()", "gradient.cop()"),
            "w",
            "dc_asgd.py:65: AttributeError: 'numpy.ndarray' object has no attribute 'cop'",
        ),
        (
            ("dc_asgd.py", "        moved =", "        1 / 0\n        moved ="),
            "ps",
            "dc_asgd.py:85: ZeroDivisionError: division by zero",
        ),
        (
            ("net.py", "images.flatten(1)", "images.flatten(1 if self.training else 9)"),
            "evaluator",
            "net.py:25: IndexError: Dimension out of range",
        ),
    ],
)
def test_its_exceptions_are_reported_by_file_and_line(
    broken: tuple[str, str, str], node: str, told: str, tmp_path: Path, digits: Path
) -> None:
    with pytest.raises(UserCodeError) as caught:
        simulated(tmp_path, digits, broken=broken)
    assert told in caught.value.message
    folder = RunFolder(tmp_path / "run")
    state = folder.state()
    assert (state.state, state.reason) == ("failed", caught.value.message)
    assert state.exit_code == caught.value.exit_code
    (log,) = folder.logs.iterdir()
    assert log.name.startswith(node)
    assert log.read_text().startswith("Traceback (most recent call last)")
    assert log.read_text().endswith(f"{log.stem}: {caught.value.message}\n")


def test_an_epoch_with_a_single_last_sample(tmp_path: Path, digits: Path) -> None:
    """1,437 samples for six workers are 239 or 240 each: with batches of 14, 239 = 17 x 14 + 1.

    The last batch then has 15 samples: 17 steps instead of 18, as nn.BatchNorm1d needs two.
    """
    normalised = (
        "net.py",
        "nn.Linear(channels * height * across, width)",
        "nn.Sequential(nn.Linear(channels * height * across, width), nn.BatchNorm1d(width))",
    )
    settings = ("algorithm=fedavg", "workers.batch_size=14", "stop.updates=12")
    run = simulated(tmp_path, digits, *settings, broken=normalised)
    rows = run.updates
    assert set(zip(rows["samples"], rows["steps"], strict=True)) <= {(239, 17), (240, 18)}
    assert (239, 17) in set(zip(rows["samples"], rows["steps"], strict=True))


def test_a_batch_that_is_too_small_for_the_network(tmp_path: Path, digits: Path) -> None:
    normalised = (
        "net.py",
        "nn.Linear(channels * height * across, width)",
        "nn.Sequential(nn.Linear(channels * height * across, width), nn.BatchNorm1d(width))",
    )
    told = "workers.batch_size: found 1, expected at least 2: Net cannot train on fewer"
    with pytest.raises(ScenarioError, match=told):
        simulated(tmp_path, digits, "workers.batch_size=1", broken=normalised)


@pytest.mark.parametrize(
    ("becomes", "found"),
    [
        ("3", "step returned 3, expected an Update"),
        ("Update(gradient.copy(), self.version, samples)", "payload is of type ndarray"),
        ("Update(Dense(gradient[1:]), self.version, samples)", r"an update with \d+ values for a"),
    ],
)
def test_a_half_that_breaks_the_contract_is_named(
    becomes: str, found: str, tmp_path: Path, digits: Path
) -> None:
    was = "Update(Dense(gradient.copy()), self.version, samples)"
    broken = ("dc_asgd.py", f"return {was}", f"return {becomes}")
    with pytest.raises(
        AlgorithmError, match=rf"dc_asgd.py:63: the worker side of DcAsgd violated .* {found}"
    ):
        simulated(tmp_path, digits, broken=broken)


def test_bytes_do_not_depend_on_the_types_that_numpy_makes(tmp_path: Path, digits: Path) -> None:
    """Payloads are sent as float32, so 64-bit arrays must not count twice."""
    was, becomes = "Dense(gradient.copy())", 'Dense(gradient.astype("f8"))'
    run = simulated(tmp_path, digits, "model.width=5", broken=("dc_asgd.py", was, becomes))
    parameters = 64 * 5 + 5 + 5 * 10 + 10
    assert set(run.updates["payload_up_bytes"]) == {4 * parameters}


def test_a_version_that_never_rises_ends_the_run(tmp_path: Path, digits: Path) -> None:
    """A training that ends at a version would continue for ever."""
    broken = ("dc_asgd.py", "self.version += 1", "self.version += 0")
    found = r"dc_asgd.py:\d+: the server side of DcAsgd violated .* version is 0 after 1 applied"
    with pytest.raises(AlgorithmError, match=found):
        simulated(tmp_path, digits, broken=broken)


def test_what_the_package_cannot_use_is_not_blamed_on_an_exit(tmp_path: Path, digits: Path) -> None:
    """A process of the pool fails where it compares the number of samples."""
    step = "    def step("
    own = f"    def next_batch_size(self, stream, now):\n        return '8'\n\n{step}"
    with pytest.raises(TestbedError, match="testbed failed: TypeError: '<' not supported"):
        simulated(tmp_path, digits, broken=("dc_asgd.py", step, own))


def test_a_run_fails_if_the_clock_cannot_use_what_own_code_returns(
    tmp_path: Path, digits: Path
) -> None:
    pull = "    def pull("
    own = f"    def next_tick(self, now):\n        return 'soon'\n\n{pull}"
    with pytest.raises(TestbedError, match="testbed failed: TypeError"):
        simulated(tmp_path, digits, broken=("dc_asgd.py", pull, own))
    state = RunFolder(tmp_path / "run").state()
    assert (state.state, state.exit_code) == ("failed", 1)
    assert state.reason.startswith("testbed failed: TypeError")
