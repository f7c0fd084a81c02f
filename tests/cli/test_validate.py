"""``testbed validate``."""

import json
from pathlib import Path

import pytest

from testbed.cli import main

QUICKSTART = str(Path(__file__).parents[2] / "scenarios" / "quickstart.yaml")


@pytest.fixture
def bad(tmp_path: Path) -> str:
    file = tmp_path / "bad.yaml"
    file.write_text("name: bad\nsed: 1\n", encoding="utf-8")
    return str(file)


def test_a_valid_file_prints_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", QUICKSTART]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith(f"ok  {QUICKSTART}: quickstart, 12 workers, ")
    assert captured.out.count("\n") == 1
    assert captured.err == ""


NET = """
from torch import nn

class Net(nn.Module):
    def __init__(self, image_shape, classes):
        super().__init__()
        linear = nn.Linear(64, classes)
        self.layers = nn.Sequential(nn.Flatten(), linear, nn.BatchNorm1d(classes))

    def forward(self, images):
        return self.layers(images)
"""
OWN = """
name: own
algorithm: bsp
model: {custom: {file: net.py, class: Net}}
dataset: digits
workers: {count: 2, batch_size: 1}
stop: {updates: 10}
"""
SPECTRAL = "nn.utils.parametrizations.spectral_norm(nn.Linear(64, classes))"


def test_an_own_model_is_built(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Warns how a batch of one sample fails, and which buffer the model changes."""
    (tmp_path / "net.py").write_text(NET, encoding="utf-8")
    (tmp_path / "own.yaml").write_text(OWN, encoding="utf-8")
    (tmp_path / "study.yaml").write_text("name: s\nscenario: own.yaml\nseeds: [1, 2]\n")
    own, study = str(tmp_path / "own.yaml"), str(tmp_path / "study.yaml")
    expected = "workers.batch_size: found 1, expected at least 2: Net cannot train on fewer"
    assert main(["validate", own, study]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith(f"{own}:6: {expected}")
    assert expected in second
    assert main(["validate", own, "--set", "workers.batch_size=2"]) == 0
    (tmp_path / "net.py").write_text(NET.replace("nn.Linear(64, classes)", SPECTRAL), "utf-8")
    assert main(["validate", own]) == 2
    told = capsys.readouterr().err
    assert "net.py:4: model: found Net, which changes its buffer layers.1.parametriz" in told


def test_all_files_are_checked_and_one_invalid_file_fails(
    bad: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["validate", bad, QUICKSTART, "/no/such/file"]) == 2
    captured = capsys.readouterr()
    assert captured.out.startswith(f"ok  {QUICKSTART}")
    assert f"{bad}:2: sed: found an unknown key" in captured.err
    assert f"{bad}:1: workers: found no such key" in captured.err
    assert "/no/such/file: found no such file" in captured.err


def test_set_overrides_a_value(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", QUICKSTART, "--set", "workers.count=24"]) == 0
    assert "24 workers" in capsys.readouterr().out
    assert main(["validate", QUICKSTART, "--set", "workers.count=many"]) == 2
    assert "--set workers.count=many: workers.count: found 'many'" in capsys.readouterr().err
    study = str(Path(QUICKSTART).with_name("adsp") / "digits.yaml")
    assert main(["validate", study, "--set", "seed=2"]) == 2
    assert "found a study and --set, expected a scenario" in capsys.readouterr().err


def test_a_missing_file_suggests_a_similar_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("share.yaml", "quick.yaml"):
        (tmp_path / name).touch()
    assert main(["validate", "nosuch.yaml", "quik.yaml"]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first == (
        "nosuch.yaml: found no such file, expected a scenario file."
        " `testbed init` creates one that can be run"
    )
    assert second.endswith("Did you mean quick.yaml?")


def test_as_json(bad: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "--json", QUICKSTART, bad]) == 2
    good, wrong = json.loads(capsys.readouterr().out)
    assert (good["file"], good["ok"], good["name"]) == (QUICKSTART, True, "quickstart")
    assert good["workers"] == 12
    assert good["updates"] > 0
    assert (wrong["file"], wrong["ok"]) == (bad, False)
    (unknown,) = [problem for problem in wrong["problems"] if problem["path"] == "sed"]
    assert (unknown["line"], unknown["hint"]) == (2, "Did you mean seed?")
    assert unknown["message"].startswith(f"{bad}:2: sed: found an unknown key, expected one of")


@pytest.mark.parametrize("family", ["model", "algorithm", "dataset"])
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("class Other: ...\n", "found no Mine in own.py, which defines Other, expected"),
        (
            "import re\nfrom math import inf\nclass Mines: ...\n",
            "which defines Mines, expected a class or function of that file. Did you mean Mines?",
        ),
        (
            "\nimport no_such.mine\nclass Mine: ...\n",
            "own.py:2: {}: found an import of no_such",
        ),
        ("from . import beside\nclass Mine: ...\n", "own.py:1: {}: found an import of ., which"),
        ("class Mine\n", "own.py:1: {}: found SyntaxError: expected ':', expected valid Python"),
    ],
)
def test_errors_found_in_the_text_of_own_code(
    family: str, text: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Found before a run is created, with the line."""
    (tmp_path / "own.py").write_text(text)
    members = {"model": "digits-cnn", "algorithm": "asgd", "dataset": "digits"}
    members[family] = "{custom: {file: own.py, class: Mine}}"
    file = tmp_path / "own.yaml"
    lines = [f"{name}: {member}" for name, member in members.items()]
    rest = "{count: 2, classes: {one: {speed: 20ms}}}\nruntime: simulated\nstop: {updates: 9}\n"
    file.write_text("\n".join(["name: own", *lines, f"workers: {rest}"]))
    assert main(["validate", str(file)]) == 2
    said = capsys.readouterr().err
    assert told.format(family) in said
    assert "own.py:" in told or f"own.yaml:{2 + list(members).index(family)}: {family}." in said
    assert main(["up", str(file), "--runs", str(tmp_path / "runs")]) == 2
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    "text",
    [
        "try:\n    import no_such_module\nexcept ImportError:\n    pass\nclass Mine: ...\n",
        "from math import sqrt as Mine\n",
        "if True:\n    Mine = dict\n",
        "from math import *\n",
        "globals()['Mine'] = dict\n",
    ],
)
def test_code_whose_text_may_be_valid(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own.py").write_text(text)
    file = tmp_path / "own.yaml"
    file.write_text(
        "{name: own, algorithm: asgd, model: mlp, dataset: {custom: {file: own.py, class: Mine}},"
        " workers: {count: 2}, stop: {updates: 9}}"
    )
    assert main(["validate", str(file)]) == 0


def test_a_scenario_may_omit_the_limit_of_updates(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "timed.yaml"
    file.write_text(
        "{name: timed, algorithm: asgd, model: digits-cnn, dataset: digits,"
        " workers: {count: 3}, stop: {time: 1min}}",
        encoding="utf-8",
    )
    assert main(["validate", str(file)]) == 0
    assert "timed, 3 workers, no limit on updates" in capsys.readouterr().out
