"""Which runs can be resumed, and the errors for the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.errors import NodeError, ScenarioError, TestbedError
from testbed.run.simulated import resumable
from testbed.runtimes.lock import holding_lock
from testbed.scenario import dump, load_text
from testbed.telemetry.folder import RunFolder

TEXT = """\
name: quick
runtime: {runtime}
algorithm: asgd
model: {{mlp: {{hidden: [4]}}}}
dataset: digits
workers: {{count: 2, classes: {{any: {{speed: 20ms}}}}}}
stop: {{updates: 10}}
checkpoint: {{every: {every}}}
"""


def folder(runs: Path, *, runtime: str = "simulated") -> RunFolder:
    scenario = load_text(TEXT.format(runtime=runtime, every=5))
    return RunFolder.create(
        runs, "r", scenario="quick", text=dump(scenario), classes=["any"] * 2, now=0.0
    )


def test_a_live_run_is_not_resumed(tmp_path: Path) -> None:
    run = folder(tmp_path, runtime="native")
    with pytest.raises(NodeError, match="r is not a simulation") as error:
        resumable(run)
    assert f"testbed up {run.scenario} --name NAME" in error.value.hint


def test_an_active_ended_or_never_saved_simulation_is_not_resumed(tmp_path: Path) -> None:
    run = folder(tmp_path)
    with pytest.raises(TestbedError, match="There is no checkpoint"):
        resumable(run)
    with holding_lock(run), pytest.raises(NodeError, match="r is still running"):
        resumable(run)
    run.move("finished", now=1.0)
    with pytest.raises(NodeError, match="r has finished"):
        resumable(run)


@pytest.mark.parametrize("every", ["0", "-3", "0s", "10us", "often", "1.5", "true", "null"])
def test_an_impossible_checkpoint_is_refused_with_its_line(every: str) -> None:
    with pytest.raises(ScenarioError, match=r":8: checkpoint.every: "):
        load_text(TEXT.format(runtime="simulated", every=every))
