"""A problem found only with the data names the line of the file it came from."""

from pathlib import Path

import pytest

from testbed.errors import Problem, ScenarioError, UserFileError
from testbed.scenario import Override
from testbed.scenario.load import with_source_lines

PATH = "dataset.partition.labels_per_worker"
TEXT = """\
name: s
dataset:
  digits:
    fraction: 0.5
    partition:
      by_label: {labels_per_worker: 11}
workers:
  count: 4
faults:
  - {at: {time: 1s}, kill: ps}
  - {at: {accuracy: 0.9}, kill: ps}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "s.yaml"
    file.write_text(TEXT)
    return file


def told(error: ScenarioError, file: Path, *settings: str) -> str:
    overrides = [Override.parse(one) for one in settings]
    with pytest.raises(type(error)) as raised, with_source_lines(file, overrides):
        raise error
    return str(raised.value)


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (PATH, 6),
        ("dataset.partition", 5),
        ("dataset.fraction", 4),
        ("model", 1),  # not in the file: the line of its parent
        ("workers.batch_size", 7),
        ("faults.1", 11),
    ],
)
def test_a_problem_names_the_line_of_the_value(file: Path, path: str, line: int) -> None:
    message = told(ScenarioError.at(path, "11", "at most 10"), file)
    assert message == f"{file}:{line}: {path}: found 11, expected at most 10"


@pytest.mark.parametrize(
    "form",
    ["{name: digits, partition: {name: by_label, labels_per_worker: 11}}", "digits"],
)
def test_the_line_is_found_in_any_form_of_a_member(tmp_path: Path, form: str) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(f"name: s\nseed: 1\ndataset: {form}\n")
    assert told(ScenarioError.at(PATH, "11", "10"), file).startswith(f"{file}:3: {PATH}: ")


def test_a_value_set_by_an_option_names_the_option(file: Path) -> None:
    option = f"{PATH}=12"
    message = told(ScenarioError.at(PATH, "12", "at most 10"), file, option)
    assert message == f"--set {option}: {PATH}: found 12, expected at most 10"


def test_a_value_from_a_base_names_the_base(file: Path) -> None:
    above = file.with_name("above.yaml")
    above.write_text("extends: s.yaml\nworkers: {count: 8}\n")
    assert told(ScenarioError.at(PATH, "11", "10"), above).startswith(f"{file}:6: ")
    assert told(ScenarioError.at("workers.count", "8", "4"), above).startswith(f"{above}:2: ")


def test_an_unreadable_file_does_not_hide_the_problem(file: Path) -> None:
    error = ScenarioError.at("workers.count", "8", "4")
    with pytest.raises(ScenarioError) as raised, with_source_lines(file):
        file.unlink()
        raise error
    assert raised.value is error


def test_errors_keep_their_location_and_class(file: Path) -> None:
    own = UserFileError([Problem("net.py", 7, "", "no class Net", "one")])
    with pytest.raises(UserFileError) as raised, with_source_lines(file):
        raise own
    assert raised.value is own
    several = UserFileError([*own.problems, *ScenarioError.at("workers", "x", "y").problems])
    with pytest.raises(UserFileError) as raised, with_source_lines(file):
        raise several
    assert [(one.file, one.line) for one in raised.value.problems] == [
        ("net.py", 7),
        (str(file), 7),
    ]
