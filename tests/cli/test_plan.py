"""``testbed plan``."""

import json
from pathlib import Path
from typing import Any

import pytest

from testbed.cli import main

TEXT = """\
name: planned
algorithm: adacomp
model: adacomp-cnn
dataset: mnist
workers:
  count: 4
  classes:
    fast:
      {share: 0.75, cpu: 0.5, cpuset: 0-1, memory: 64MiB, link: {up: {rate: 10mbit, queue: 200ms}}}
    slow: {share: 0.25, link: {down: {rate: 1mbit, delay: 40ms}}}
stop: {updates: 100}
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "planned.yaml"
    path.write_text(TEXT, encoding="utf-8")
    return str(path)


def as_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main(["plan", "--json", *arguments]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_table_has_a_row_per_class(
    file: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    assert main(["plan", file]) == 0
    printed = capsys.readouterr().out
    for text in (
        "w0 - w2",
        "10.77.0.2 - 10.77.0.4",
        "20010 - 20012",
        "no eth0",
        "0.5 on 0-1",
        "tbf rate 10mbit",
        "netem delay 40ms",
        "not shaped",
        "211,690 parameters",
    ):
        assert text in printed


def test_json_has_every_node(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    data = as_json(capsys, file)
    assert [node["name"] for node in data["nodes"]] == ["ps", "evaluator", "w0", "w1", "w2", "w3"]
    evaluator, fast = data["nodes"][1:3]
    assert evaluator["link"] is None
    assert (fast["cpu"], fast["memory_bytes"], fast["device_class"]) == (0.5, 2**26, "fast")
    assert (fast["cpuset"], evaluator["cpuset"]) == ("0-1", None)
    assert (fast["link"]["address"], fast["link"]["mac"]) == ("10.77.0.2", "02:00:0a:4d:00:02")
    up = fast["link"]["up"]
    assert (up["rate_bits_per_second"], up["queue_seconds"]) == (10e6, 0.2)
    assert up["qdisc"].startswith("tbf rate 10mbit")
    assert fast["link"]["down"]["qdisc"] == "not shaped"
    assert data["budget"]["parameters"] == 211_690
    assert data["budget"]["host"]["cpus"] >= 1


def test_options_change_the_scenario(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    data = as_json(capsys, file, "--workers", "8", "--set", "model=digits-cnn")
    assert len(data["nodes"]) == 10
    assert data["budget"]["parameters"] != 211_690


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--workers", "0"], "--workers 0: workers.count: found 0"),
        (["--workers", "1023"], "--workers 1023: workers.count: found 1,023, expected at most"),
        (["--set", "workers.cuont=3"], "--set workers.cuont=3: workers.cuont: found an unknown"),
        (["--set", "stop"], "--set stop: found no path=value"),
    ],
)
def test_a_wrong_option_is_named(
    arguments: list[str], message: str, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", file, *arguments]) == 2
    assert message in capsys.readouterr().err


def test_it_touches_nothing(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    as_json(capsys, file)
    assert [path.name for path in tmp_path.iterdir()] == ["planned.yaml"]
