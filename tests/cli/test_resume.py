"""A simulation that is killed and resumed leaves what one leaves that was not."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow  # every run imports torch

SETTINGS = (
    *("--runtime", "simulated", "--set", "checkpoint.every=100", "--set", "stop.updates=1000"),
    *("--set", "model={mlp: {hidden: [16]}}", "--set", "evaluate.every=150"),
    *("--set", "workers.think={mean: 50ms}"),
    *("--set", "workers.classes.fast.link={up: {rate: 1mbit}}"),
)


def result(folder: Path) -> dict[str, bytes]:
    """All that has to be the same."""
    files = [folder / "evaluations.csv", *folder.glob("updates/*"), *folder.glob("model/*")]
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


def test_a_killed_simulation_is_resumed_to_the_bit(bed: Any, name: str) -> None:
    """It is killed with a process for every CPU, and resumed with one."""
    whole, killed = bed.runs / f"{name}-whole", bed.runs / name
    with bed.start("up", bed.scenario, *SETTINGS, "--name", name) as up:
        bed.wait_until((killed / "ps" / "checkpoint.safetensors").exists)
        os.kill(bed.controller(name), signal.SIGKILL)
        up.communicate(timeout=30)
    assert bed.state(name) == "training"
    assert bed.leftovers(name) == []
    refuse_what_was_changed(bed, killed)

    one_cpu = {min(os.sched_getaffinity(0))}
    resumed = bed("resume", name, preexec_fn=lambda: os.sched_setaffinity(0, one_cpu))
    assert f"run {name} (simulated), resumed" in resumed.stdout
    assert bed.state(name) == "finished"
    events = [json.loads(line) for line in (killed / "events.jsonl").read_text().splitlines()]
    (event,) = (event for event in events if event["event"] == "resumed")
    assert event["version"] % 100 == 0
    assert "has come to its end" in bed("resume", name, status=5).stderr

    bed("up", bed.scenario, *SETTINGS, "--name", whole.name)
    assert not (whole / "ps" / "checkpoint.safetensors").exists()
    assert result(killed) == result(whole)


def refuse_what_was_changed(bed: Any, run: Path) -> None:
    """Nothing is touched of a run whose checkpoint is not that of its scenario, or no whole one."""
    before = result(run)
    for file, changed, told in (
        (run / "ps" / "checkpoint.safetensors", lambda was: was[: len(was) // 2], "cut short"),
        (
            run / "scenario.yaml",
            lambda was: was.replace(b"seed: 1", b"seed: 2"),
            "another scenario",
        ),
    ):
        content = file.read_bytes()
        file.write_bytes(changed(content))
        assert told in bed("resume", run.name, status=1).stderr
        file.write_bytes(content)
    assert result(run) == before
    assert bed.state(run.name) == "training"
