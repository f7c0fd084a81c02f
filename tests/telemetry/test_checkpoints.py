"""Checkpoints as files: whole, of the run's own scenario, or refused."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from testbed.errors import TestbedError
from testbed.telemetry.checkpoints import (
    About,
    read_checkpoint,
    scenario_digest,
    write_checkpoint,
)
from testbed.values.state import pack, unpack

ABOUT = About("ps", "abc", version=500, time_seconds=12.5, note={"parts": 3})
STATE = pack({"model": np.arange(4, dtype=np.float32), "none": np.empty(0, np.int32)})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "checkpoint.safetensors"
    write_checkpoint(path, ABOUT, STATE)
    return path


def test_a_checkpoint_survives_a_round_trip(file: Path) -> None:
    about, state = read_checkpoint(file, kind="ps", scenario="abc")
    assert about == ABOUT
    assert unpack(state)["model"].tolist() == [0, 1, 2, 3]
    assert list(file.parent.iterdir()) == [file]


def test_a_truncated_checkpoint_is_refused(file: Path) -> None:
    content = file.read_bytes()
    for length in (0, 7, len(content) // 2, len(content) - 1):
        file.write_bytes(content[:length])
        with pytest.raises(TestbedError, match=f"{file.name}: not a checkpoint"):
            read_checkpoint(file, kind="ps", scenario="abc")


def test_a_checkpoint_of_another_scenario_is_refused(file: Path) -> None:
    with pytest.raises(TestbedError, match="belongs to another scenario"):
        read_checkpoint(file, kind="ps", scenario="abd")
    with pytest.raises(
        TestbedError, match="a live run's parameter server, expected one of a sim"
    ) as error:
        read_checkpoint(file, kind="simulation", scenario="abc")
    assert "damaged" not in f"{error.value}{error.value.hint}"


def test_links_planted_by_a_node_are_not_followed(file: Path) -> None:
    other = file.with_name("link")
    other.symlink_to(file)
    with pytest.raises(TestbedError, match="found a symbolic link"):
        read_checkpoint(other, kind="ps", scenario="abc")
    pipe = file.with_name("pipe")
    os.mkfifo(pipe)
    with pytest.raises(TestbedError, match="found a named pipe, expected a regular file"):
        read_checkpoint(pipe, kind="ps", scenario="abc")


def test_a_missing_checkpoint_is_an_error_that_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(TestbedError, match="There is no checkpoint") as error:
        read_checkpoint(tmp_path / "none", kind="ps", scenario="abc")
    assert "checkpoint: {every: 500}" in error.value.hint


def test_the_digest_covers_scenario_and_own_files(tmp_path: Path) -> None:
    (tmp_path / "scenario.yaml").write_text("name: a\n")
    first = scenario_digest(tmp_path)
    (tmp_path / "custom").mkdir()
    (tmp_path / "custom" / "mine.py").write_text("pass\n")
    second = scenario_digest(tmp_path)
    (tmp_path / "custom" / "mine.py").write_text("pass \n")
    assert len({first, second, scenario_digest(tmp_path)}) == 3
