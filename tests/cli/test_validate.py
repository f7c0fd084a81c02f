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


def test_a_good_file_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", QUICKSTART]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith(f"ok  {QUICKSTART}: quickstart, 12 workers, ")
    assert captured.out.count("\n") == 1
    assert captured.err == ""


def test_all_files_are_checked_and_one_bad_one_is_enough(
    bad: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["validate", bad, QUICKSTART, "/no/such/file"]) == 2
    captured = capsys.readouterr()
    assert captured.out.startswith(f"ok  {QUICKSTART}")
    assert f"{bad}:2: sed: found an unknown key" in captured.err
    assert f"{bad}:1: workers: found no such key" in captured.err
    assert "/no/such/file: found no such file" in captured.err


def test_a_value_is_tried_with_set(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", QUICKSTART, "--set", "workers.count=24"]) == 0
    assert "24 workers" in capsys.readouterr().out
    assert main(["validate", QUICKSTART, "--set", "workers.count=many"]) == 2
    assert "--set workers.count=many: workers.count: found 'many'" in capsys.readouterr().err
    study = str(Path(QUICKSTART).with_name("adsp") / "digits.yaml")
    assert main(["validate", study, "--set", "seed=2"]) == 2
    assert "found a study and --set, expected a scenario" in capsys.readouterr().err


def test_a_file_that_is_not_there_is_compared_by_its_name_without_the_ending(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("share.yaml", "quick.yaml"):
        (tmp_path / name).touch()
    assert main(["validate", "nosuch.yaml", "quik.yaml"]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first == "nosuch.yaml: found no such file, expected a scenario file"
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


def test_a_scenario_may_have_no_limit_of_updates(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "timed.yaml"
    file.write_text(
        "{name: timed, algorithm: asgd, model: digits-cnn, dataset: digits,"
        " workers: {count: 3}, stop: {time: 1min}}",
        encoding="utf-8",
    )
    assert main(["validate", str(file)]) == 0
    assert "timed, 3 workers, no limit of updates" in capsys.readouterr().out
