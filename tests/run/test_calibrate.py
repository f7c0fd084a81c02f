"""Measuring a machine, with a clock that is set by hand, and for real."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
import yaml

from testbed.cli import main
from testbed.models.mlp import Mlp
from testbed.run.calibrate import (
    COPIED_BYTES,
    Subject,
    calibrate,
    memory_bytes_per_second,
    step_seconds,
)
from testbed.scenario.profiles import read_profile

SUBJECT = Subject("mlp", Mlp(name="mlp", hidden=(16,)), (1, 8, 8), 10, Path(), batch=4, seconds=3.0)


def ticks(step: float) -> Iterator[float]:
    return (place * step for place in count())


def test_the_clock_decides() -> None:
    """Every reading is 0.5 s after the one before it."""
    network = SUBJECT.model.build((1, 8, 8), 10, folder=Path())
    assert step_seconds(network, SUBJECT, clock=ticks(0.5).__next__) == 0.5
    assert memory_bytes_per_second(ticks(0.25).__next__) == 2 * COPIED_BYTES / 0.25


def test_the_profile_gives_the_measured_time() -> None:
    subject = Subject("mlp", Mlp(name="mlp"), (1, 28, 28), 10, Path(), seconds=0.3)
    found = calibrate(subject, date="2026-01-31", machine="a desk")
    assert found.predicted(subject.batch) == pytest.approx(found.step_seconds, rel=0.01)
    assert found.profile.source == "testbed calibrate mlp, on a desk"


def test_the_command_writes_a_profile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "mine.yaml"
    short = ("--seconds", "0.2", "--threads", "1", "--shape", "1x8x8")
    assert main(["calibrate", "digits-cnn", *short, "--out", str(out)]) == 0
    assert f"speed: {{profile: {out}}}" in capsys.readouterr().out
    assert read_profile(out).gflops > 0
    assert "1x8x8" in yaml.safe_load(out.read_text())["note"]
    assert main(["calibrate", "digits-cnn", *short, "--out", str(out)]) == 2
    assert main(["calibrate", "mpl"]) == 2
    assert "Did you mean mlp?" in capsys.readouterr().err
    assert main(["calibrate", "mlp", "--shape", "8x8"]) == 2


def test_a_model_of_tokens(capsys: pytest.CaptureFixture[str]) -> None:
    short = ("--seconds", "0.2", "--threads", "1", "--shape", "16", "--classes", "20")
    assert main(["calibrate", "gpt", *short]) == 0
    assert "32 samples of 16 took" in capsys.readouterr().out
    assert main(["calibrate", "gpt"]) == 2
    assert "--shape: gpt reads tokens, expected a number, like 80" in capsys.readouterr().err
    assert main(["calibrate", "mlp", "--shape", "16"]) == 2
    assert "--shape: mlp reads images, expected CxHxW" in capsys.readouterr().err
