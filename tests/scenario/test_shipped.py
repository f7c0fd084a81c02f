"""The shipped scenarios, by name."""

import tomllib
from pathlib import Path

import pytest

import testbed
from testbed.cli import main
from testbed.errors import ScenarioError
from testbed.scenario import load
from testbed.scenario.source import find_scenario, shipped, shipped_studies
from testbed.studies import load_study

ROOT = Path(__file__).parents[2]


def test_shipped_scenarios_are_named_by_path_without_extension() -> None:
    assert shipped()["quickstart"] == ROOT / "scenarios" / "quickstart.yaml"
    assert shipped()["adacomp/paper"] == ROOT / "scenarios" / "adacomp" / "paper.yaml"
    assert list(shipped()) == sorted(shipped())
    assert {"adacomp/fig3", "adacomp/waiting-law"} <= set(shipped_studies())
    assert not set(shipped_studies()) & set(shipped())
    assert {name for name in shipped_studies() if "/" not in name} == set()  # as no run's name


def test_a_file_of_that_name_takes_precedence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_scenario(Path("quickstart")) == shipped()["quickstart"]
    Path("quickstart").touch()
    assert find_scenario(Path("quickstart")) == Path("quickstart")
    for path in (Path("quickstart.yaml"), Path("other"), Path("/quickstart")):
        assert find_scenario(path) == path


def test_shipped_scenarios_are_loaded_and_extended_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert load("quickstart") == load(shipped()["quickstart"])
    file = tmp_path / "mine.yaml"
    file.write_text("extends: quickstart\nname: mine\n")
    assert load(file) == load("quickstart").model_copy(update={"name": "mine"})
    with pytest.raises(ScenarioError, match=r"quikstart: .*Did you mean quickstart\?"):
        load("quikstart")


def test_shipped_studies_are_found_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_study("federated/study").name == "federated"
    assert main(["report", "federated/study", "--verdicts"]) == 0
    assert main(["report", "quickstart"]) == 7  # a run of that name
    capsys.readouterr()
    assert main(["sweep", "federated/studi"]) == 2
    assert "Did you mean federated/study?" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["custom/dc-asgd", "devices/one-by-one", "devices/profiles", "traces/traces"]
)
def test_their_files_are_relative_to_them_and_not_to_the_current_folder(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(f"extends: {name}\nname: mine\n")
    for file in (name, "mine.yaml"):
        short = ("--set", "stop.updates=12", "--runs", "runs")
        assert main(["up", file, "--runtime", "simulated", *short]) == 0
    run = testbed.simulate(name, settings={"stop.updates": 12}, runs="runs")
    assert len(run.updates) == 12


def test_the_wheel_has_every_shipped_scenario() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    packed = [
        file
        for patterns in project["tool"]["setuptools"]["data-files"].values()
        for pattern in patterns
        for file in ROOT.glob(pattern)
    ]
    files = [*shipped().values(), *shipped_studies().values(), *ROOT.glob("scenarios/*/*.py")]
    assert {*files, ROOT / "scenarios" / "schema.json"} <= set(packed)
