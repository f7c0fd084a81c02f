"""``up --runtime simulated``: no containers, the same folder."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from own_algorithms import SILENT

from testbed.errors import ScenarioError
from testbed.run.net import open_links
from testbed.telemetry.folder import RunFolder

pytestmark = pytest.mark.slow  # every run imports torch three times


def test_a_simulated_run_is_like_any_other(bed: Any, name: str) -> None:
    done = bed("up", bed.scenario, "--runtime", "simulated", "--name", name)
    assert "SIMULATED" in done.stdout
    assert bed.state(name) == "finished"
    summary = json.loads(bed("report", name, "--json").stdout)
    assert summary["runtime"] == "simulated"
    assert summary["updates"]["total"] == 60
    assert summary["ingress"]["payload_bytes"] == 60 * 4 * 17_258
    assert summary["ingress"]["wire_bytes"] is None
    assert name in bed("ps", "--all").stdout
    bed("down", name)


def test_runs_differ_only_with_different_seeds(bed: Any, name: str) -> None:
    for run, seed in ((f"{name}-a", 1), (f"{name}-b", 1), (f"{name}-c", 2)):
        seeded = ("--set", f"seed={seed}", "--set", "workers.think={mean: 50ms}")
        bed("up", bed.scenario, "--runtime", "simulated", "--name", run, *seeded)
    equal = json.loads(bed("compare", f"{name}-a", f"{name}-b", "--json").stdout)
    assert {one["ratio"] for one in equal["measures"]} == {0.0}
    assert equal["scenario"] == {}
    bed("compare", f"{name}-a", f"{name}-c", "--tolerance", "0", status=9)
    beside = bed("report", f"{name}-a", f"{name}-c").stdout
    assert re.search(rf"the scenarios differ in +{name}-a +{name}-c", beside)
    assert re.search(r"seed +1 +2", beside)
    assert re.search(r"updates +60 +60", beside)


def test_rerunning_a_run_folder_is_bit_identical(bed: Any, name: str) -> None:
    """Also with the user's own code and traces, which are copied into the folder."""
    own = bed.scenario.parent / "own"
    own.mkdir()
    (own / "net.py").write_text(
        "from torch import nn\n\nclass Net(nn.Sequential):\n"
        "    def __init__(self, shape, classes):\n"
        "        super().__init__(nn.Flatten(), nn.Linear(64, classes))\n"
    )
    (own / "days.csv").write_text("time_seconds,available\n0,1\n1,0\n2,1\n")
    first, second, third = (f"{name}-{letter}" for letter in "abc")
    bed("up", bed.scenario, "--runtime", "simulated", "--name", first,
        "--set", "model={custom: {file: own/net.py, class: Net}}",
        "--set", "workers.availability={trace: own/days.csv}")  # fmt: skip
    (own / "net.py").unlink()
    bed("up", bed.runs / first / "scenario.yaml", "--name", second)
    bed("up", "--again", second, "--name", third)
    for run in (second, third):
        for record in ("scenario.yaml", "events.jsonl", "evaluations.csv", "custom/net.py"):
            assert (bed.runs / run / record).read_bytes() == (
                bed.runs / first / record
            ).read_bytes()
    assert "a run to repeat with --again RUN" in bed("up", status=2).stderr


def test_own_code_that_never_pushes_ends_its_run(bed: Any, name: str) -> None:
    (bed.scenario.parent / "mine.py").write_text(SILENT)
    mine = ("--set", "algorithm={custom: {file: mine.py, class: Mine}}", "--set", "model=mlp",
            "--set", "model.hidden=[1]", "--set", "workers.batch_size=40")  # fmt: skip
    done = bed("up", bed.scenario, "--runtime", "simulated", "--name", name, *mine, status=10)
    assert "mine.py:8: the worker side of Mine violated the contract: step has ret" in done.stderr


@pytest.mark.parametrize("option", ["--detach", "--keep"])
def test_detach_and_keep_are_refused_without_containers(bed: Any, name: str, option: str) -> None:
    done = bed("up", bed.scenario, "--runtime", "simulated", "--name", name, option, status=2)
    assert "need containers" in done.stderr


def test_errors_found_with_the_data_name_their_line(bed: Any) -> None:
    text = bed.scenario.read_text().replace(
        "partition: iid", "partition: {by_label: {labels_per_worker: 11}}"
    )
    bed.scenario.write_text(text)
    for runtime in ("simulated", "native"):
        refused = bed("up", bed.scenario, "--runtime", runtime, status=2)
        assert f"{bed.scenario}:6: dataset.partition.labels_per_worker: found 11," in refused.stderr
    assert not list(bed.runs.glob("*"))


def test_commands_that_need_a_node_or_a_link_are_refused(bed: Any, name: str) -> None:
    bed("up", bed.scenario, "--runtime", "simulated", "--name", name)
    refused = bed("exec", name, "w0", "--", "true", status=2)
    assert "plan.json: runtime: found simulated, expected a run with" in refused.stderr
    links = open_links(RunFolder(bed.runs / name))  # as every subcommand of `net` does
    with pytest.raises(ScenarioError, match=r"plan.json: runtime: found simulated"), links:
        raise AssertionError("it has links")


@pytest.mark.parametrize("dead", [False, True], ids=["running", "killed"])
def test_down_ends_an_active_run_and_closes_a_killed_one(bed: Any, name: str, dead: bool) -> None:
    endless = ("--set", "stop.updates=1000000")
    with bed.start("up", bed.scenario, "--runtime", "simulated", "--name", name, *endless) as up:
        bed.wait_until_training(name)
        assert bed.controller(name) == up.pid
        if dead:
            up.kill()
            up.communicate()
            bed.wait_until(lambda: not RunFolder(bed.runs / name).alive())  # nor its pool
            assert bed.state(name) == "training"
        assert f"{name}: stopped" in bed("down", name).stdout
        up.communicate()
    assert up.returncode == (-9 if dead else 130)
    run = json.loads((bed.runs / name / "run.json").read_text())
    assert (run["state"], run["reason"]) == ("interrupted", "stopped by `testbed down`")
    assert f"{name}: nothing to remove" in bed("down", name).stdout
    assert bed.leftovers(name) == []


def test_a_run_that_diverges_ends_and_says_so(bed: Any, name: str) -> None:
    rate = ("--set", "algorithm.learning_rate=1e30")
    done = bed("up", bed.scenario, "--runtime", "simulated", "--name", name, *rate)
    assert "diverged: pushes of" in done.stdout
    assert bed.state(name) == "finished"
