"""``testbed logs`` on a handmade run folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from testbed.cli import main
from testbed.plan.make import plan
from testbed.plan.written import plan_text
from testbed.scenario import load_text
from testbed.telemetry.folder import RunFolder

TEXT = """\
name: quick
algorithm: asgd
model: digits-cnn
dataset: digits
workers: {count: 2, classes: {fast: {share: 0.5}, slow: {share: 0.5}}}
stop: {updates: 1}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    folder = RunFolder.create(
        Path("runs"),
        "good",
        scenario="quick",
        text="",
        classes=["fast", "slow"],
        now=0.0,
        plan=plan_text(plan(load_text(TEXT), "good")),
    )
    folder.log("ps").write_text("one\ntwo\n")
    folder.log("w1").write_bytes(b"caf\xe9 \xff\nunfinished")
    folder.log("agent").write_text("warm\n")
    return folder


def test_every_node_with_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["logs", "good"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "ps        | one",
        "ps        | two",
        "w1        | caf\ufffd \ufffd",
        "w1        | unfinished",
    ]


def test_some_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["logs", "good", "class=slow", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[1] == {"node": "w1", "line": "unfinished"}
    assert len(lines) == 2


TITLE = "\x1b]0;owned\x07red\x9b1m"


@pytest.mark.parametrize(
    ("options", "shown"),
    [([], r"\x1b]0;owned\x07red\x9b1m"), (["--raw"], TITLE)],
    ids=["escaped", "raw"],
)
def test_control_sequences(
    folder: RunFolder, capsys: pytest.CaptureFixture[str], options: list[str], shown: str
) -> None:
    folder.log("w0").write_text(f"{TITLE}\tcaf\u00e9\n")
    assert main(["logs", "good", "w0", *options]) == 0
    assert capsys.readouterr().out == f"w0 | {shown}\tcaf\u00e9\n"


def test_the_log_of_the_agent_is_shown_when_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["logs", "good", "agent"]) == 0
    assert capsys.readouterr().out == "agent | warm\n"


def test_following_an_ended_run_returns(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["logs", "good", "w1", "--follow"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "w1 | unfinished"


def test_empty_logs_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["logs", "good", "w0", "evaluator"]) == 0
    assert capsys.readouterr() == ("", "no output of w0, evaluator\n")


def test_a_selector_without_a_match(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["logs", "good", "w9"]) == 2
    assert capsys.readouterr().err.startswith("selector: found 'w9', expected a node (ps, ")


def test_an_unknown_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["logs", "bad"]) == 7
    assert "There is no run named bad" in capsys.readouterr().err
