"""Scenarios that extend others."""

from pathlib import Path

import pytest

from testbed.errors import ScenarioError
from testbed.scenario import Override, Scenario, dump, load, load_text
from testbed.scenario.own_code import names_of


@pytest.fixture
def write(tmp_path: Path, small: str) -> Path:
    """A folder with small.yaml."""
    (tmp_path / "small.yaml").write_text(small, encoding="utf-8")
    return tmp_path


def extended(folder: Path, text: str, *, name: str = "above.yaml") -> Scenario:
    """A scenario that extends small.yaml."""
    file = folder / name
    file.write_text(f"extends: small.yaml\n{text}\n", encoding="utf-8")
    return load(file)


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("", []),
        ("name: other\nseed: 5", ["name=other", "seed=5"]),
        ("stop: {time: 1h}", ["stop.time=1h"]),
        ("stop: {time: 1h, updates: null}", ["stop={time: 1h}"]),
        ("workers: {classes: {slow: {speed: 9ms}}}", ["workers.classes.slow.speed=9ms"]),
        (
            "workers: {classes: {slow: null, fast: {share: null}}}",
            ["workers.classes={fast: {link: {up: {rate: 10mbit}}}}"],
        ),
        ("workers: {classes: {slow: {speed: null}}}", ["workers.classes.slow={share: 0.5}"]),
        ("programs: {one: {command: [a, b]}}", ["programs={one: {command: [a, b]}}"]),
        ("algorithm: {ratio: 0.5}", ["algorithm.ratio=0.5"]),
        ("algorithm: {adacomp: {ratio: 0.5}}", ["algorithm.ratio=0.5"]),
        ("algorithm: {name: adacomp, ratio: 0.5}", ["algorithm.ratio=0.5"]),
        ("algorithm: asgd", ["algorithm=asgd"]),
        ("algorithm: {asgd: {learning_rate: 0.5}}", ["algorithm={asgd: {learning_rate: 0.5}}"]),
        ("dataset: {partition: {dirichlet: {alpha: 1}}}", [
            "dataset={digits: {partition: {dirichlet: {alpha: 1}}}}"
        ]),
        ("x-mine: [1]", []),
    ],
)  # fmt: skip
def test_extending_equals_setting_the_values(
    write: Path, small: str, text: str, settings: list[str]
) -> None:
    overrides = [Override.parse(setting) for setting in settings]
    assert extended(write, text) == load_text(small, overrides=overrides)


def test_a_member_keeps_options_that_are_not_overridden(write: Path) -> None:
    extended(write, "algorithm: {adacomp: {ratio: 0.5, learning_rate: 0.2}}", name="first.yaml")
    second = write / "second.yaml"
    second.write_text("extends: first.yaml\nalgorithm: {adacomp: {ratio: 0.25}}\n")
    algorithm = load(second).algorithm
    assert algorithm.model_dump() == {"name": "adacomp", "ratio": 0.25, "learning_rate": 0.2}


def test_lists_are_replaced_entirely(write: Path) -> None:
    extended(write, "programs: {one: {command: [a, b, c], cpu: 1.0}}", name="first.yaml")
    second = write / "second.yaml"
    second.write_text("extends: first.yaml\nprograms: {one: {command: [d]}}\n")
    program = load(second).programs["one"]
    assert (program.command, program.cpu) == (("d",), 1.0)


def test_the_result_is_complete_and_extends_nothing(write: Path) -> None:
    scenario = extended(write, "seed: 3")
    assert "extends" not in dump(scenario)
    assert load_text(dump(scenario)) == scenario


def test_a_base_finds_its_own_files_from_anywhere(write: Path, small: str) -> None:
    (write / "common" / "nets").mkdir(parents=True)
    (write / "common" / "nets" / "mine.py").write_text("class Net: ...\n")
    base = small.replace("digits-cnn", "{custom: {file: nets/mine.py, class: Net}}")
    (write / "common" / "base.yaml").write_text(base)
    (write / "common" / "middle.yaml").write_text("extends: base.yaml\n")
    (write / "top").mkdir()
    top = write / "top" / "top.yaml"
    top.write_text("extends: ../common/middle.yaml\nname: top\n")
    assert load(top).model.model_dump()["file"] == "../common/nets/mine.py"
    (write / "common" / "nets" / "mine.py").unlink()
    with pytest.raises(ScenarioError) as refused:
        load(top)
    (problem,) = refused.value.problems
    assert (Path(problem.file), problem.line) == (write / "top/../common/base.yaml", 3)
    assert problem.found == "no file '../common/nets/mine.py'"


RECORDED = """
name: base
runtime: simulated
algorithm: {scadles: {learning_rate: 0.1}}
model: digits-cnn
dataset: digits
workers:
  count: 2
  availability: {trace: a.csv}
  classes:
    fast:
      speed: 20ms
      link: {up: {rate: {trace: r.csv}}, down: {rate_trace: {trace: r.csv}}}
streams: {rates: {constant: {per_second: 100}}, over_time: %s}
stop: {updates: 20}
evaluate: {every: 10}
"""


@pytest.mark.parametrize("over_time", ["{trace: {file: f.csv}}", "{name: trace, file: f.csv}"])
def test_a_base_finds_its_traces_from_anywhere(tmp_path: Path, over_time: str) -> None:
    common = tmp_path / "common"
    common.mkdir()
    (common / "a.csv").write_text("time_seconds,available\n0,1\n9,0\n10,1\n")
    (common / "r.csv").write_text("time_seconds,bits_per_second\n0,1e6\n1,3e6\n2,0\n")
    (common / "f.csv").write_text("time_seconds,factor\n0,1\n1,2\n2,0\n")
    (common / "base.yaml").write_text(RECORDED % over_time)
    above = tmp_path / "above.yaml"
    above.write_text("extends: common/base.yaml\n")
    scenario = load(above)
    assert scenario.workers.availability is not None
    assert set(names_of(scenario).values()) == {f"common/{one}.csv" for one in "arf"}
    assert scenario.workers.classes["fast"].link.down.rate == 2e6


OWN = """
from typing import Literal
from testbed.algorithms.asgd import Asgd

class First(Asgd):
    name: Literal["custom"] = "custom"
    alpha: float = 1.0

class Second(Asgd):
    name: Literal["custom"] = "custom"
    beta: float = 2.0
"""


@pytest.mark.parametrize(
    ("above", "options"),
    [
        ("{beta: 3.0, class: Second}", {"beta": 3.0}),
        ("{custom: {file: own.py, class: Second}}", {"beta": 2.0}),
        ("{custom: {file: ./own.py, class: First}}", {"alpha": 5.0}),
        ("{learning_rate: 0.5}", {"alpha": 5.0}),
    ],
)
def test_another_own_class_has_no_options_of_the_first(
    write: Path, small: str, above: str, options: dict[str, float]
) -> None:
    (write / "own.py").write_text(OWN)
    own = "algorithm: {custom: {file: own.py, class: First, alpha: 5.0}}"
    (write / "first.yaml").write_text(small.replace("algorithm: adacomp", own))
    second = write / "second.yaml"
    second.write_text(f"extends: first.yaml\nalgorithm: {above}\n")
    found = load(second).algorithm.model_dump()
    assert {key: found[key] for key in found if key in ("alpha", "beta")} == options


def test_text_without_a_file_extends_nothing() -> None:
    with pytest.raises(
        ScenarioError, match=r"scenario:1: extends: .*Only a scenario in a file can extend"
    ):
        load_text("extends: small.yaml\n")


@pytest.mark.parametrize(
    ("name", "found"),
    [
        (r'"a\0b"', r"'a.x00b': a file that cannot be read \(.*embedded null"),
        ("a" * 300, "'aaaa.*aaa': a file that cannot be read .File name too long"),
        ("loop", "'loop': a file that cannot be read .Too many levels of symbolic links"),
        ("/dev/null", "'/dev/null': a pipe or a device, expected a regular file"),
        ("''", "'': a folder, expected a scenario file"),
        ("~", "found nothing, expected the name of a scenario file"),
    ],
)
def test_missing_bases(tmp_path: Path, name: str, found: str) -> None:
    (tmp_path / "loop").symlink_to("loop")
    file = tmp_path / "above.yaml"
    file.write_text(f"name: a\nextends: {name}\n")
    with pytest.raises(ScenarioError, match=f"above.yaml:2: extends: .*{found}"):
        load(file)


def test_a_link_to_itself_is_a_cycle_too(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text("extends: two.yaml\n")
    (tmp_path / "two.yaml").symlink_to("one.yaml")
    with pytest.raises(ScenarioError, match=r"'two\.yaml', which extends itself"):
        load(tmp_path / "one.yaml")
