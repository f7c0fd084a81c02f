from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from testbed.errors import RunNotFound
from testbed.telemetry.folder import RunFolder
from testbed.telemetry.registry import Registry, find_run, list_runs


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "state" / "runs")


def make(runs: Path, name: str) -> Path:
    return RunFolder.create(runs, name, scenario="s", text="", classes=[], now=0.0).path


def test_the_path_of_the_registry() -> None:
    home = Path("/home/ada")
    usual = Registry(home / ".local/state/testbed/runs")
    assert Registry.of_user({}, home) == usual
    assert Registry.of_user({"XDG_STATE_HOME": ""}, home) == usual
    assert Registry.of_user({"XDG_STATE_HOME": "relative"}, home) == usual
    assert Registry.of_user({"XDG_STATE_HOME": "/var/s"}, home) == Registry(
        Path("/var/s/testbed/runs")
    )


def test_runs_are_registered(tmp_path: Path, registry: Registry) -> None:
    assert registry.runs() == []
    b, a = make(tmp_path / "x", "b"), make(tmp_path / "y", "a")
    for run in (b, a, a):
        registry.add(run)
    assert registry.runs() == [a, b]


def test_deleted_runs_are_not_listed_and_then_removed(tmp_path: Path, registry: Registry) -> None:
    gone, here = make(tmp_path / "x", "gone"), make(tmp_path / "x", "here")
    registry.add(gone)
    shutil.rmtree(gone)
    assert registry.runs() == []
    registry.add(here)
    assert len(list(registry.folder.iterdir())) == 1


def test_a_run_under_runs_and_in_the_registry_is_listed_once(
    tmp_path: Path, registry: Registry
) -> None:
    runs = tmp_path / "runs"
    first, second = make(runs, "r1"), make(tmp_path / "x", "r2")
    registry.add(first)
    registry.add(second)
    (runs / "no-run").mkdir()
    assert list_runs(runs, registry) == [first, second]
    assert list_runs(tmp_path / "nowhere", registry) == [first, second]
    assert find_run("r1", runs=runs, registry=registry).path == first
    assert find_run("r2", runs=runs, registry=registry).path == second


def test_a_path_selects_a_run(tmp_path: Path, registry: Registry) -> None:
    path = make(tmp_path / "x", "r")
    assert find_run(f"{path}/", runs=tmp_path, registry=registry).path == path
    with pytest.raises(RunNotFound, match="not a run folder"):
        find_run(f"{tmp_path}/x/s", runs=tmp_path, registry=registry)


def test_a_run_in_the_current_folder_is_found_by_name(
    tmp_path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make(tmp_path / "x", "r")
    monkeypatch.chdir(tmp_path / "x")
    assert find_run("r", runs=Path("runs"), registry=registry).path == path


def test_a_folder_that_is_not_a_run_is_named(tmp_path: Path, registry: Registry) -> None:
    (tmp_path / "runs" / "r").mkdir(parents=True)
    with pytest.raises(RunNotFound) as caught:
        find_run("r", runs=tmp_path / "runs", registry=registry)
    assert caught.value.message == (f"{tmp_path}/runs/r is not a run folder: it has no run.json.")


def test_of_two_runs_of_the_same_name_the_one_in_the_runs_folder_is_found(
    tmp_path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = make(tmp_path / "one/runs", "mine-1"), make(tmp_path / "two/runs", "mine-1")
    for run in (first, second):
        registry.add(run)
    for run in (first, second):
        assert find_run("mine-1", runs=run.parent, registry=registry).path == run
        monkeypatch.chdir(run.parent.parent)
        assert find_run("mine-1", runs=Path("runs"), registry=registry).path == run


def test_two_runs_of_the_same_name_elsewhere_are_both_named(
    tmp_path: Path, registry: Registry
) -> None:
    here, there = make(tmp_path / "x", "r"), make(tmp_path / "y", "r")
    registry.add(here)
    registry.add(there)
    with pytest.raises(RunNotFound) as caught:
        find_run("r", runs=tmp_path / "z", registry=registry)
    assert caught.value.message == (
        f"There is no run named r in {tmp_path}/z, and 2 elsewhere: {here} and {there}."
    )
    assert caught.value.exit_code == 7
    assert find_run(str(there), runs=tmp_path / "z", registry=registry).path == there


def test_an_unknown_name(tmp_path: Path, registry: Registry) -> None:
    with pytest.raises(RunNotFound, match="There are no runs yet"):
        find_run("quickstart-1", runs=tmp_path / "runs", registry=registry)
    make(tmp_path / "runs", "quickstart-1")
    with pytest.raises(RunNotFound, match=r"Did you mean quickstart-1\?"):
        find_run("quickstrat-1", runs=tmp_path / "runs", registry=registry)
    with pytest.raises(RunNotFound, match="lists the runs"):
        find_run("zzz", runs=tmp_path / "runs", registry=registry)
