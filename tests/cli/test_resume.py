"""A killed and resumed simulation leaves the same results as an uninterrupted one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed.telemetry.checkpoints import read_checkpoint, scenario_digest, write_checkpoint

pytestmark = pytest.mark.slow  # every run imports torch

SETTINGS = (
    *("--runtime", "simulated", "--set", "checkpoint.every=100", "--set", "stop.updates=1000"),
    *("--set", "model={mlp: {hidden: [16]}}", "--set", "evaluate.every=150"),
    *("--set", "workers.think={mean: 50ms}"),
    *("--set", "workers.classes.fast.link={up: {rate: 1mbit}}"),
)


def result(folder: Path) -> dict[str, bytes]:
    """Everything that must be the same."""
    files = [folder / "evaluations.csv", *folder.glob("updates/*"), *folder.glob("model/*")]
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


def everything(folder: Path) -> dict[str, bytes]:
    return result(folder) | {
        name: (folder / name).read_bytes() for name in ("run.json", "events.jsonl", "traffic.csv")
    }


def test_a_killed_and_resumed_simulation_is_bit_identical(bed: Any, name: str) -> None:
    """It is killed while using a process per CPU, and resumed with one process."""
    whole, killed = bed.runs / f"{name}-whole", bed.runs / name
    with bed.start("up", bed.scenario, *SETTINGS, "--name", name) as up:
        bed.wait_until((killed / "ps" / "checkpoint.safetensors").exists)
        os.kill(bed.controller(name), signal.SIGKILL)
        up.communicate(timeout=180)
    assert bed.state(name) == "training"
    assert bed.leftovers(name) == []
    refuse_what_was_changed(bed, killed)

    on_one_cpu = ["taskset", "--cpu-list", str(min(os.sched_getaffinity(0)))]
    resumed = subprocess.run(
        [*on_one_cpu, *bed.words("resume", name)],
        env=bed.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"run {name} (simulated), resumed" in resumed.stdout
    assert bed.state(name) == "finished"
    events = [json.loads(line) for line in (killed / "events.jsonl").read_text().splitlines()]
    (event,) = (event for event in events if event["event"] == "resumed")
    assert event["version"] % 100 == 0
    assert "has finished" in bed("resume", name, status=5).stderr

    bed("up", bed.scenario, *SETTINGS, "--name", whole.name)
    assert not (whole / "ps" / "checkpoint.safetensors").exists()
    assert result(killed) == result(whole)


def refuse_what_was_changed(bed: Any, run: Path) -> None:
    """Nothing is modified if the checkpoint is damaged or belongs to another scenario."""
    before, checkpoint = everything(run), run / "ps" / "checkpoint.safetensors"
    for file, changed, told in (
        (checkpoint, lambda was: was[: len(was) // 2], "truncated"),
        (checkpoint, lambda was: was + bytes(8), "its SHA-256 differs"),
        (checkpoint, lambda was: edited(checkpoint, None), "its tree is a NoneType"),
        (checkpoint, lambda was: edited(checkpoint, COMMAND), "no record is a"),
        (
            run / "scenario.yaml",
            lambda was: was.replace(b"seed: 1", b"seed: 2"),
            "another scenario",
        ),
    ):
        content = file.read_bytes()
        file.write_bytes(changed(content))
        refused = bed("resume", run.name, status=4)
        assert told in refused.stderr
        assert str(checkpoint) in refused.stderr
        file.write_bytes(content)
    assert everything(run) == before
    assert bed.state(run.name) == "training"


COMMAND = ["list", ["object", "testbed.values.user_code", "UserCode", {"path": "/tmp/command.py"}]]


def edited(checkpoint: Path, tree: object) -> bytes:
    """The checkpoint with another tree and a matching digest."""
    scenario = scenario_digest(checkpoint.parents[1])
    about, state = read_checkpoint(checkpoint, kind="simulation", scenario=scenario)
    other = checkpoint.with_name("other")
    write_checkpoint(other, about, replace(state, tree=tree))
    data = other.read_bytes()
    other.unlink()
    return data
