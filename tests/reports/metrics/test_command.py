"""Inputs that `testbed up` refuses before it creates anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.cli import main

SCENARIO = """\
name: tiny
runtime: simulated
algorithm: adacomp
model: digits-cnn
dataset: digits
workers: {count: 2, classes: {fast: {speed: 50ms}}}
stop: {updates: 4}
"""


@pytest.mark.parametrize(
    ("options", "status", "told"),
    [
        (["--metrics"], 2, "testbed export prometheus RUN --out FILE"),
        (["--metrics-address", "9500"], 2, "--metrics-address: found '9500', expected an address"),
        (["--metrics-address", "0.0.0.0:0"], 2, "add --insecure-listen"),
        (["--metrics-per-worker"], 2, "need --metrics or --metrics-address"),
    ],
)
def test_refused(
    options: list[str],
    status: int,
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tiny.yaml").write_text(SCENARIO)
    assert main(["up", "tiny.yaml", *options]) == status
    assert told in capsys.readouterr().err
    assert not Path("runs").exists()
