"""Real, simulated sweeps of small studies on the digits, some of which are killed."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from testbed.studies import load_study
from testbed.studies.found import find_runs

pytestmark = pytest.mark.slow  # every run imports torch


def children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def lives(pid: int) -> bool:
    """Whether a process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def two_rates(name: str, updates: int) -> str:
    return (
        f"name: {name}\nscenario: base.yaml\nvary:\n  length: [stop.updates={updates}]\n"
        "  rate: [algorithm.learning_rate=0.1, algorithm.learning_rate=0.01]\n"
    )


def test_a_run_with_own_traces_and_code_is_found_again(sweeps: Any, write_study: Any) -> None:
    """A changed trace makes a different run, with a separate folder."""
    traces = sweeps.folder / "traces"
    traces.mkdir()
    (traces / "rate.csv").write_text("time_seconds,bits_per_second\n0,1234567\n1,3e6\n2,0\n")
    (traces / "days.csv").write_text("time_seconds,available\n0,1\n100,0\n200,1\n")
    (sweeps.folder / "net.py").write_text(
        "from torch import nn\n\nclass Net(nn.Sequential):\n"
        "    def __init__(self, shape, classes):\n"
        "        super().__init__(nn.Flatten(), nn.Linear(64, classes))\n"
    )
    settings = [
        "workers.availability.trace=traces/days.csv",
        "workers.classes.fast.link.up.rate={trace: traces/rate.csv}",
        "model={custom: {file: net.py, class: Net}}",
    ]
    write_study(
        text="name: own\nscenario: base.yaml\nseeds: [1, 2]\n"
        f"vary: {{files: {{mine: {json.dumps(settings)}}}}}\n"
    )
    assert "2 of 2 runs exist" in sweeps("sweep", "study.yaml")
    before = sweeps.begun()
    assert "own: 2 runs, 2 exist already" in sweeps("sweep", "study.yaml")
    assert sweeps.begun() == before
    (traces / "days.csv").write_text("time_seconds,available\n0,1\n100,0\n300,1\n")
    others = "2 runs of these names were made with other files or another scenario"
    assert f"own: 2 runs, 0 exist already; {others}" in sweeps("sweep", "study.yaml")
    assert len(sweeps.begun()) == 4


def test_a_sweep_executes_missing_runs_and_two_studies_share_runs(
    sweeps: Any, write_study: Any
) -> None:
    write_study(text=two_rates("first", 60))
    said = sweeps("sweep", "study.yaml", "--only", "0.1")
    assert "first: 1 runs, 0 exist already" in said
    before = sweeps.begun()
    assert list(before) == ["first-60-0-1-s0"]
    said = sweeps("sweep", "study.yaml")
    assert "first: 2 runs, 1 exist already" in said
    write_study(text=two_rates("second", 60), name="second.yaml")
    assert "second: 2 runs, 2 exist already" in sweeps("sweep", "second.yaml")
    after = sweeps.begun()
    assert after.keys() == {"first-60-0-1-s0", "first-60-0-01-s0"}
    assert after["first-60-0-1-s0"] == before["first-60-0-1-s0"]
    assert "# second" in sweeps("report", "second.yaml")
    environment = json.loads((sweeps.runs / "first-60-0-1-s0/environment.json").read_text())
    assert "sweep" in environment["argv"]


def test_a_scaled_sweep_has_separate_runs(sweeps: Any, write_study: Any) -> None:
    write_study(text=two_rates("first", 60))
    sweeps("sweep", "study.yaml", "--scale", "0.5", "--jobs", "1")
    assert sweeps.begun().keys() == {"first-60-0-1-x0-5-s0", "first-60-0-01-x0-5-s0"}
    said = sweeps("report", "study.yaml", "--scale", "0.5")
    assert "**SCALED**" in said
    assert "|      30 |" in said  # updates


def test_runs_with_the_same_training_compute_once(sweeps: Any, write_study: Any) -> None:
    """With BSP the model does not depend on the links, nor a run's record on reuse."""
    slower = "workers.classes.fast.link.up.rate=1mbit"
    write_study(
        text="name: links\nscenario: base.yaml\n"
        "vary: {method: {bsp: 'algorithm={bsp: {learning_rate: 0.1}}'}, "
        f"rate: {{fast: stop.updates=60, slow: [stop.updates=60, {slower}]}}}}"
    )
    said = sweeps("sweep", "study.yaml", "--jobs", "1", "--reuse", "10MB")
    assert "links-bsp-fast-s0 finished: 60 updates applied\n" in said
    assert ("links-bsp-slow-s0 finished: 60 updates applied; 60 gradients reused") in said
    assert not (sweeps.runs / ".gradients").exists()
    shared, sweeps.runs = sweeps.runs, sweeps.folder / "apart"
    sweeps("sweep", "study.yaml")
    for run in ("links-bsp-fast-s0", "links-bsp-slow-s0"):
        ours, theirs = shared / run, sweeps.runs / run
        records = [ours / "events.jsonl", ours / "evaluations.csv", *ours.glob("updates/*")]
        assert len(records) > 2
        for record in records:
            assert record.read_bytes() == (theirs / record.relative_to(ours)).read_bytes()


def test_an_invalid_size(sweeps: Any) -> None:
    said = sweeps("sweep", "study.yaml", "--reuse", "10", status=2)
    assert "'--reuse': found '10', expected a size with its unit, like 64MiB." in said


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_sweep_continues_where_it_stopped(
    number: signal.Signals, sweeps: Any, write_study: Any
) -> None:
    write_study(
        text="name: long\nscenario: base.yaml\nvary: {length: [stop.updates=60, stop.updates=1500]}"
    )
    sweeps("sweep", "study.yaml", "--only", "60")
    short = sweeps.begun()
    sweep = sweeps.start("study.yaml")
    sweeps.wait_until_training("long-1500-s0")
    sweep.send_signal(number)
    shown = "".join(filter(None, sweep.communicate(timeout=120)))
    interrupted = "interrupted: to resume, repeat the command." in shown
    assert interrupted is (number == signal.SIGINT)
    broken = sweeps.begun()
    said = sweeps("sweep", "study.yaml")
    assert "long: 2 runs, 1 exist already" in said
    after = sweeps.begun()
    assert after.keys() == {"long-60-s0", "long-1500-s0"}
    assert after["long-60-s0"] == short["long-60-s0"]
    assert after["long-1500-s0"] != broken["long-1500-s0"]
    study = load_study(sweeps.folder / "study.yaml")
    assert [one.condition for one in find_runs(study, sweeps.runs).values()] == ["valid"] * 2


def test_a_killed_sweep_continues_from_a_checkpoint(sweeps: Any, write_study: Any) -> None:
    """The other run, which has none, starts from scratch."""
    with_checkpoint = "[stop.updates=1500, checkpoint.every=200]"
    write_study(
        text="name: long\nscenario: base.yaml\n"
        f"vary: {{length: {{kept: {with_checkpoint}, short: stop.updates=60}}}}"
    )
    sweep = sweeps.start("study.yaml", "--only", "kept")
    sweeps.wait_until((sweeps.runs / "long-kept-s0/ps/checkpoint.safetensors").exists)
    sweep.kill()
    sweep.communicate(timeout=120)
    broken = sweeps.begun()
    said = sweeps("sweep", "study.yaml")
    assert "long-kept-s0 resumes" in said
    assert "long-short-s0 starts" in said
    assert "2 of 2 runs exist, 0 of them not valid" in said
    assert sweeps.begun()["long-kept-s0"] == broken["long-kept-s0"]


def test_a_killed_run_is_reported_and_starts_from_scratch(
    sweeps: Any, write_study: Any, eventually: Any
) -> None:
    write_study(
        text="name: long\nscenario: base.yaml\nvary: {length: [stop.updates=60, stop.updates=1500]}"
    )
    sweep = sweeps.start("study.yaml", "--jobs", "1")
    sweeps.wait_until_training("long-1500-s0")
    (parent,) = children(sweep.pid)
    (child,) = children(parent)
    pool = eventually(lambda: children(child))
    os.kill(child, signal.SIGKILL)
    said, _ = sweep.communicate(timeout=120)
    assert sweep.returncode == 5
    assert "long-1500-s0 FAILED" in said
    assert "1 of 2 runs exist" in said
    eventually(lambda: not any(lives(pid) for pid in pool))  # they notice its end themselves
    assert "1 exist already" in sweeps("sweep", "study.yaml")


def test_an_invalid_run_is_kept_marked_and_reported(sweeps: Any, write_study: Any) -> None:
    """All of its workers crash at their first push."""
    crash = "faults=[{crash: {workers: [class=fast], after_push: 1}}]"
    rates = "[algorithm.learning_rate=0.1, algorithm.learning_rate=0.01]"
    levels = f'{{steady: algorithm.learning_rate=0.1, crashed: "{crash}"}}'
    write_study(text=two_rates("bad", 60).replace(rates, levels))
    said = sweeps("sweep", "study.yaml", status=6)
    reason = "The training stalled: no worker is left"
    assert f"bad-60-crashed-s0 is INVALID, its folder is kept: {reason}" in said
    before = sweeps.begun()
    assert "2 exist already" in sweeps("sweep", "study.yaml", status=6)
    assert sweeps.begun() == before
    assert "0 of 1†" in sweeps("report", "study.yaml")


def test_a_failed_run_does_not_prevent_the_others(sweeps: Any, write_study: Any) -> None:
    (sweeps.folder / "net.py").write_text("class Net:\n    pass\n")
    custom = '"model={custom: {file: net.py, class: Net}}"'
    write_study(
        text="name: nets\nscenario: base.yaml\n"
        f"vary: {{model: {{mine: {custom}, theirs: stop.updates=60}}}}"
    )
    said = sweeps("sweep", "study.yaml", status=2)
    assert "nets-mine-s0 FAILED" in said
    assert "net.py" in said
    assert "1 of 2 runs exist" in said


def test_results_of_another_study_are_refused_before_any_run(sweeps: Any, write_study: Any) -> None:
    (sweeps.runs / "first").mkdir(parents=True)
    (sweeps.runs / "first/study.json").write_text('{"study": "first", "file": "/elsewhere.yaml"}')
    write_study(text=two_rates("first", 60))
    said = sweeps("sweep", "study.yaml", status=2)
    assert "with the results of another study, /elsewhere.yaml" in said
    assert sweeps.begun() == {}
