"""``testbed init``."""

from pathlib import Path

import pytest

from testbed.cli import main
from testbed.datasets.folders import FolderDataset
from testbed.scenario import load
from testbed.scenario.load_workload import load_any
from testbed.scenario.source import shipped

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_init_writes_a_scenario_with_comments(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "wrote first.yaml"
    text = Path("first.yaml").read_text(encoding="utf-8")
    assert text.startswith(f"# yaml-language-server: $schema={ROOT}/scenarios/schema.json\n")
    assert sum("#" in line for line in text.splitlines()) > 15
    assert load("first.yaml").name == "first"


def test_init_takes_the_name_of_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "mine.yaml"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "wrote mine.yaml"
    assert load("mine.yaml").name == "mine"


@pytest.mark.parametrize("example", sorted({*shipped()} - {"flower/flower"}))
def test_every_shipped_scenario_can_be_copied_under_another_name(example: str) -> None:
    assert main(["init", "lr0.01_s1", "--from", example]) == 0
    copy, expected = load_any("lr0.01_s1.yaml"), load_any(example)
    expected = expected.model_copy(update={"name": "lr0.01_s1"})
    data = getattr(expected, "dataset", None)
    if isinstance(data, FolderDataset):  # relative to the copy, as written
        beside = data.model_copy(update={"folder": str(Path.cwd() / Path(data.folder).name)})
        expected = expected.model_copy(update={"dataset": beside})
    assert copy == expected


def test_python_files_are_copied_too(capsys: pytest.CaptureFixture[str]) -> None:
    Path("net.py").touch()
    assert main(["init", "mine", "--from", "custom/dc-asgd"]) == 2
    assert "net.py: found an existing file" in capsys.readouterr().err
    assert not Path("mine.yaml").exists()
    Path("net.py").unlink()
    assert main(["init", "mine", "--from", "custom/dc-asgd"]) == 0
    assert capsys.readouterr().out.split()[1:6:2] == ["mine.yaml", "dc_asgd.py", "net.py"]


def test_the_app_of_flower_is_copied_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "mine", "--from", "flower/flower"]) == 0
    names = ("pyproject.toml", *(f"digits_app/{one}.py" for one in ("server_app", "task")))
    for name in names:
        original = ROOT / "scenarios" / "flower" / "app" / name
        assert Path("app", name).read_text() == original.read_text()
    assert main(["validate", "mine.yaml"]) == 2  # before the environment is there
    assert "workload.flower.python: found no " in capsys.readouterr().err


def test_an_existing_file_is_not_overwritten(capsys: pytest.CaptureFixture[str]) -> None:
    Path("first.yaml").write_text("mine")
    assert main(["init"]) == 2
    assert "first.yaml: found an existing file, expected an unused name" in capsys.readouterr().err
    assert Path("first.yaml").read_text() == "mine"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["../up"], "NAME: found '../up', expected a name of at most 40"),
        (["big!"], "NAME: found 'big!', expected a name of at most 40"),
        (["a", "--from", "b"], "--from: found 'b', expected one of adacomp/mnist-20, "),
    ],
)
def test_errors_are_named_and_nothing_is_written(
    here: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert list(here.iterdir()) == []
