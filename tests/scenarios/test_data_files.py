"""The examples of data in files of the user's: each trains, on files that a script writes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import testbed
from testbed.cli import main
from testbed.datasets import load as load_data
from testbed.errors import ScenarioError
from testbed.scenario import load
from testbed.scenario.dealing import deal

EXAMPLES = Path(__file__).parents[2] / "scenarios" / "data"
NAMES = ("leaf", "huggingface", "parquet")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the examples and their data."""
    into = tmp_path_factory.mktemp("data")
    for name in NAMES:
        shutil.copy(EXAMPLES / f"{name}.yaml", into)
    subprocess.run([sys.executable, EXAMPLES / "digits_files.py", into], check=True)
    return into


@pytest.mark.parametrize("name", NAMES)
def test_an_example_learns(folder: Path, name: str) -> None:
    """The three have the same digits; those of LEAF and by the column have users."""
    run = testbed.simulate(folder / f"{name}.yaml", runs=folder / "runs", name=name)
    assert run.evaluations["top1"].iloc[-1] > 0.5
    scenario = load(folder / f"{name}.yaml")
    prepared = scenario.dataset.prepare(folder / "cache", environment={}, folder=folder)
    data = load_data(prepared)
    assert (data.image_shape, data.classes, len(data.test_labels)) == ((1, 8, 8), 10, 360)
    shares = deal(scenario, data, folder)
    if data.train_users is not None:
        writers = [set(data.train_users[share]) for share in shares]
        assert sum(map(len, writers)) == len(set(data.train_users)) == 32


def test_pictures_equal_lists_of_bytes(folder: Path) -> None:
    """A picture of a digit is standardised to what its bytes in a list are."""
    found = []
    for name in NAMES[1:]:
        config = load(folder / f"{name}.yaml").dataset
        prepared = config.prepare(folder / "cache", environment={}, folder=folder)
        found.append(load_data(prepared))
    assert np.array_equal(found[0].train_images, found[1].train_images)


def test_the_folder_is_relative_to_the_file_that_names_it(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also from another folder, in an extending scenario, and where the run is repeated."""
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(f"extends: {folder / 'leaf.yaml'}\nname: mine\n")
    short = ("--set", "stop.updates=10", "--runs", "runs", "--name")
    assert main(["up", "mine.yaml", *short, "first"]) == 0
    assert main(["up", "runs/first/scenario.yaml", *short, "again"]) == 0
    first, again = (testbed.Run(f"runs/{name}").evaluations for name in ("first", "again"))
    assert first["loss"].tolist() == again["loss"].tolist()


def test_a_folder_that_is_missing_is_named_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = shutil.copy(EXAMPLES / "leaf.yaml", tmp_path)
    assert main(["up", str(file), "--runs", str(tmp_path / "runs")]) == ScenarioError.exit_code
    found = capsys.readouterr().err
    assert "leaf.yaml:12: dataset.folder: found" in found
    assert "digits-leaf, which is no folder, expected the folder of the data set" in found
    assert not (tmp_path / "runs").exists()
