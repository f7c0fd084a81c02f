"""Which runs of a study exist already, and what happens to the folders of others."""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from testbed.errors import TestbedError
from testbed.runtimes import Auto, Docker, Native
from testbed.scenario import Scenario
from testbed.studies import Study, load_study
from testbed.studies.found import alone, claim_run_name, find_runs
from testbed.telemetry.folder import RunFolder
from testbed.telemetry.registry import Registry

WriteRun = Callable[..., RunFolder]


@pytest.fixture
def study(write_study: Callable[..., Path]) -> Study:
    return load_study(write_study())


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "registry")


def test_a_run_is_found_under_any_name(study: Study, runs: Path, write_run: WriteRun) -> None:
    folder = write_run(study.runs[3], runs, [0.5], name="by-hand")
    found = find_runs(study, runs)
    assert list(found) == [study.runs[3]]
    assert (found[study.runs[3]].path, found[study.runs[3]].condition) == (folder.path, "valid")
    assert find_runs(study, runs / "nowhere") == {}


def test_any_runtime_that_auto_may_resolve_to_counts(
    write_study: Callable[..., Path], runs: Path, write_run: WriteRun
) -> None:
    study = load_study(write_study())
    first = study.runs[0]
    for name in ("docker", "native"):
        left_open = replace(first, scenario=with_runtime(first.scenario, Auto(name="auto")))
        kind = Docker(name="docker") if name == "docker" else Native(name="native")
        done = replace(first, scenario=with_runtime(first.scenario, kind))
        write_run(done, runs / name, [0.5])
        assert list(find_runs(replace(study, runs=(left_open,)), runs / name)) == [left_open]


def with_runtime(scenario: Scenario, runtime: Auto | Docker | Native) -> Scenario:
    return scenario.model_copy(update={"runtime": runtime})


@pytest.mark.parametrize(
    ("state", "updates", "condition"),
    [
        ("finished", 4, "valid"),
        ("finished", 0, "invalid"),
        ("failed", 4, "interrupted"),
        ("interrupted", 4, "interrupted"),
    ],
)
def test_the_state_of_a_run(
    state: str, updates: int, condition: str, study: Study, runs: Path, write_run: WriteRun
) -> None:
    write_run(study.runs[0], runs, [0.5], state=state, updates=updates)
    assert find_runs(study, runs)[study.runs[0]].condition == condition


def test_a_run_without_a_process_was_interrupted(
    study: Study, runs: Path, write_run: WriteRun
) -> None:
    folder = write_run(study.runs[0], runs, [0.5], state="training")
    assert find_runs(study, runs)[study.runs[0]].condition == "interrupted"
    folder.lock.touch()
    with folder.lock.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert find_runs(study, runs)[study.runs[0]].condition == "running"


def test_the_further_of_two_runs_is_used(study: Study, runs: Path, write_run: WriteRun) -> None:
    for name, state in (("a", "failed"), ("b", "finished"), ("c", "interrupted")):
        write_run(study.runs[0], runs, [0.5], state=state, name=name)
    assert find_runs(study, runs)[study.runs[0]].path.name == "b"


def test_a_damaged_folder_does_not_hide_the_others(
    study: Study, runs: Path, write_run: WriteRun
) -> None:
    write_run(study.runs[0], runs, [0.5]).run_file.write_text("{")
    write_run(study.runs[1], runs, [0.5]).scenario.write_text("name: [")
    write_run(study.runs[2], runs, [0.5])
    assert list(find_runs(study, runs)) == [study.runs[2]]


def test_an_interrupted_run_is_removed_and_its_name_reused(
    study: Study, runs: Path, registry: Registry, write_run: WriteRun
) -> None:
    run = study.runs[0]
    folder = write_run(run, runs, [0.5], state="interrupted")
    registry.add(folder.path)
    assert claim_run_name(run, runs, registry) == run.base_name
    assert not folder.path.exists()
    assert registry.runs() == []


def test_an_interrupted_run_started_by_hand_is_kept(
    study: Study, runs: Path, registry: Registry, write_run: WriteRun
) -> None:
    folder = write_run(study.runs[0], runs, [0.5], state="failed", name="by-hand")
    assert claim_run_name(study.runs[0], runs, registry) == study.runs[0].base_name
    assert folder.state().state == "failed"


def test_an_incomplete_run_folder_is_removed(study: Study, runs: Path, registry: Registry) -> None:
    run = study.runs[0]
    left = runs / run.base_name
    (left / "updates").mkdir(parents=True)
    (left / ".scenario.yaml.17.tmp").touch()
    assert claim_run_name(run, runs, registry) == run.base_name
    assert not left.exists()


def test_the_run_of_another_scenario_keeps_its_name(
    study: Study, runs: Path, registry: Registry, write_run: WriteRun
) -> None:
    first, second = study.runs[:2]
    folder = write_run(second, runs, [0.5], name=first.base_name)
    name = claim_run_name(first, runs, registry)
    assert name == f"{first.base_name}-{first.identity[:8]}"
    assert folder.state().state == "finished"


def test_a_foreign_folder_is_untouched(study: Study, runs: Path, registry: Registry) -> None:
    mine = runs / study.runs[0].base_name
    mine.mkdir(parents=True)
    (mine / "thesis.tex").touch()
    assert claim_run_name(study.runs[0], runs, registry) != mine.name
    assert (mine / "thesis.tex").exists()


def test_two_sweeps_of_one_folder_are_refused(runs: Path) -> None:
    with (
        alone(runs),
        pytest.raises(TestbedError, match=r"Another sweep is active in .* \(pid \d+"),
        alone(runs),
    ):
        raise AssertionError("both are at work")
    with alone(runs):
        pass
