"""``testbed check``: an algorithm of one's own is tried."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.cli import main

SHIPPED = Path(__file__).parents[2] / "scenarios" / "custom"


@pytest.mark.parametrize("file", ["dc_asgd.py", "dc-asgd.yaml"])
def test_one_that_keeps_everything(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(SHIPPED / file)]) == 0
    first, *rest = capsys.readouterr().out.splitlines()
    assert first == "DcAsgd (learning_rate=0.1 compensation=0.04)"
    assert {line[:9] for line in rest} == {"  kept   "}


def test_options_are_set_in_either_kind_of_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(SHIPPED / "dc_asgd.py"), "--set", "compensation=1"]) == 0
    scenario = str(SHIPPED / "dc-asgd.yaml")
    assert main(["check", scenario, "--set", "algorithm.compensation=1"]) == 0
    assert capsys.readouterr().out.count("compensation=1.0)") == 2


def test_a_broken_promise_has_a_line_and_the_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = (SHIPPED / "dc_asgd.py").read_text(encoding="utf-8")
    file = tmp_path / "mine.py"
    file.write_text(source.replace("self._pulled[worker]\n", "self._puled[worker]\n"))
    assert main(["check", str(file)]) == 10
    told = capsys.readouterr()
    assert "  BROKEN  A training of 60 updates" in told.out
    assert (
        "          mine.py:85: AttributeError: 'Server' object has no attribute '_pul" in told.out
    )
    assert "Traceback (most recent call last)" in told.err


@pytest.mark.parametrize(
    ("source", "status", "expected"),
    [
        ("x = 1\n", 2, "found no subclass of AlgorithmConfig"),
        ("import gone\n", 11, "mine.py:1: found the file raised ModuleNotFoundError"),
    ],
)
def test_a_file_without_an_algorithm(
    source: str, status: int, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(source, encoding="utf-8")
    assert main(["check", str(file)]) == status
    assert expected in capsys.readouterr().err


def test_a_scenario_without_an_algorithm_of_ones_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(SHIPPED.parent / "quickstart.yaml")]) == 2
    assert "algorithm: found adacomp, expected an algorithm of one's own" in capsys.readouterr().err
