"""Whole simulated runs: their records, and bit-identical repetition."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed import Run
from testbed.datasets import load
from testbed.models import batched
from testbed.scenario.experiment import load_model
from testbed.telemetry.entry import only
from testbed.telemetry.event_kinds import ComputedOneByOne
from testbed.telemetry.events import read_events

Simulate = Callable[..., Run]


def records(run: Run) -> dict[str, bytes]:
    """Everything that must be reproducible."""
    folder = run.folder
    parts = [*sorted(folder.updates.iterdir()), *sorted(folder.model.iterdir())]
    files = [folder.events, folder.evaluations, folder.traffic, *parts]
    return {str(file.relative_to(folder.path)): file.read_bytes() for file in files}


def test_a_run_applies_exactly_the_configured_updates(run_simulation: Simulate) -> None:
    run = run_simulation("one")
    updates = run.updates
    assert len(updates) == 120
    assert list(updates["version_applied"]) == list(range(120))
    assert (updates["staleness"] == updates["version_applied"] - updates["version_pulled"]).all()
    assert (updates["payload_up_bytes"] == 8 * updates["entries"]).all()
    assert updates["time_seconds"].is_monotonic_increasing
    assert list(run.evaluations["version"]) == [0, 40, 80, 120]
    assert list(run.evaluations["images"]) == [100, 100, 100, 360]
    assert run.evaluations["final"].iloc[-1]


def test_saved_models_load_and_have_their_recorded_accuracy(
    run_simulation: Simulate, digits: Path
) -> None:
    run, data = run_simulation("one"), load(digits)
    final, best = (load_model(run.folder.path, which) for which in ("final", "best"))
    assert (final.taken.version, final.taken.final) == (120, True)
    assert final.bound.evaluate(data.test_images, data.test_labels) == final.taken.evaluation
    during = run.evaluations.loc[~run.evaluations["final"]]
    assert best.taken.evaluation.metrics["top1"] == during["top1"].max()
    assert best.taken.version in set(during["version"])


def test_gradients_at_once_repeat_to_the_bit_and_agree_with_those_one_by_one(
    run_simulation: Simulate,
) -> None:
    """Whatever the number of processes, and so of gradients that wait for one."""
    vmap = "runtime.vmap=4"
    first = records(run_simulation("first", vmap, processes=1))
    assert first == records(run_simulation("second", vmap, processes=2))
    alone, together = run_simulation("alone"), Run(run_simulation("third", vmap).folder.path)
    np.testing.assert_array_equal(together.updates["time_seconds"], alone.updates["time_seconds"])
    np.testing.assert_allclose(together.evaluations["loss"], alone.evaluations["loss"], rtol=1e-3)
    assert not np.array_equal(together.evaluations["loss"], alone.evaluations["loss"])


def test_the_process_that_forks_the_pool_computes_no_gradient(
    run_simulation: Simulate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a GPU, PyTorch's autograd could not be used in its children then."""
    pids, tried = tmp_path / "pids", batched.require_batchable

    def recorded(*arguments: Any) -> None:
        with pids.open("a") as file:
            file.write(f"{os.getpid()}\n")
        tried(*arguments)

    monkeypatch.setattr(batched, "require_batchable", recorded)
    run_simulation("one", "runtime.vmap=4", processes=2)
    found = pids.read_text().split()
    assert len(found) == 2
    assert str(os.getpid()) not in found


def test_a_model_whose_gradients_are_computed_one_by_one(run_simulation: Simulate) -> None:
    text = "model={custom: {file: net.py, class: Net}}"
    net = (
        "from torch import nn\n\nclass Net(nn.Sequential):\n"
        "    def __init__(self, shape, classes):\n"
        "        super().__init__(nn.Flatten(), nn.Linear(64, classes))\n"
    )
    run = run_simulation("own", text, "runtime.vmap=4", files={"net.py": net})
    (found,) = only(read_events(run.folder.events), ComputedOneByOne)
    assert found.reason == "a model of your own computes one gradient at a time"
    alone = run_simulation("alone", text, files={"net.py": net})
    assert list(run.evaluations["loss"]) == list(alone.evaluations["loss"])


def test_a_run_is_bit_identical_for_any_number_of_processes(run_simulation: Simulate) -> None:
    first = records(run_simulation("first", processes=1))
    assert first == records(run_simulation("second", processes=2))
    assert first == records(run_simulation("third", processes=3))


@pytest.mark.slow
def test_a_run_is_bit_identical_on_a_busy_host(run_simulation: Simulate) -> None:
    """Twice as many busy processes as CPUs compete with the second run."""
    first = run_simulation("first")
    spin = [sys.executable, "-c", "while True: pass"]
    with ExitStack() as stack:
        for _ in range(2 * len(os.sched_getaffinity(0))):
            spinning = stack.enter_context(subprocess.Popen(spin))
            stack.callback(spinning.kill)
        second = run_simulation("second")
    assert records(first) == records(second)
    summaries = [
        run.summarise() | {"run": "", "started": "", "ended": ""} for run in (first, second)
    ]
    assert summaries[0] == summaries[1]


@pytest.mark.parametrize("think", ["{law: 'uniform(0.5,1.5)', mean: 100ms}", "null"])
def test_saving_checkpoints_changes_nothing(run_simulation: Simulate, think: str) -> None:
    """A checkpoint works with every law of think times and speeds."""
    speed = "{law: exponential, mean: 10ms}"
    settings = (f"workers.think={think}", f"workers.classes.fast.speed={speed}")
    saved = run_simulation("saved", *settings, "checkpoint.every=30")
    assert saved.folder.checkpoint.exists()
    without = run_simulation("not", *settings)
    assert saved.updates.equals(without.updates)
    assert saved.evaluations.equals(without.evaluations)


def test_another_seed_gives_another_run(run_simulation: Simulate) -> None:
    assert records(run_simulation("first")) != records(run_simulation("second", "seed=4"))


def test_a_cycle_adds_up(run_simulation: Simulate) -> None:
    """A worker's time consists of its calls, steps and thinking, and nothing else."""
    updates = run_simulation("one").updates
    parts = ["transfer_seconds", "blocked_seconds", "compute_seconds", "think_seconds"]
    for _, own in updates.groupby("worker"):
        passed = own["time_seconds"].iloc[-1] - own["time_seconds"].iloc[0]
        counted = own[parts].iloc[1:].to_numpy().sum()
        # A row is recorded when the push arrives; its transit belongs to the next row's transfer.
        # So the two differ by the transits of the first and last push: 0.2 s at 200 kbit and 0.1 s
        # for a lost packet each, at most.
        assert abs(passed - counted) < 0.3
    assert np.allclose(sorted(set(updates["compute_seconds"])), [0.01, 0.05])
    assert updates["think_seconds"].between(0.05, 0.15).all()


def test_a_step_takes_longer_with_a_larger_batch(run_simulation: Simulate) -> None:
    """10 ms, plus 2 ms for each of 16 samples: 42 ms, for any number of processes."""
    settings = ("workers.batch_size=16", "workers.classes.fast.speed={base: 10ms, each: 2ms}")
    runs = [run_simulation(f"p{count}", *settings, processes=count) for count in (1, 2)]
    assert records(runs[0]) == records(runs[1])
    updates = runs[0].updates
    fast = updates.loc[updates["device_class"] == "fast", "compute_seconds"]
    assert np.allclose(fast, 0.042)
    assert len(fast) > 10


def test_requests_queue_at_the_server_by_hand(run_simulation: Simulate) -> None:
    """Five equal workers with 10 ms per step, no link delays, and 30 ms per request."""
    run = run_simulation(
        *("queue", "ps={service: 30ms}", "workers={count: 5, classes: {one: {speed: 10ms}}}"),
        "stop.updates=10",
    )
    updates = run.updates
    # The first five pulls are served by 30, 60, ... 150 ms. The first worker pushes at 40 ms,
    # when four are ahead of it, and is served at 180 ms; from then on one arrives every 30 ms.
    assert list(updates["worker"]) == [0, 1, 2, 3, 4] * 2
    assert np.allclose(updates["time_seconds"], [0.18 + 0.03 * i for i in range(10)])
    assert np.allclose(updates["blocked_seconds"][:5], [0.03, 0.06, 0.09, 0.12, 0.15])
    assert np.allclose(updates["blocked_seconds"][5:], 0.14)  # three ahead of it, and its own 30 ms
    assert np.allclose(updates["transfer_seconds"], 0.0)


def test_a_time_scale_changes_only_real_seconds(
    run_simulation: Simulate,
) -> None:
    plain, scaled = run_simulation("plain"), run_simulation("scaled", "time_scale=2.0")
    for column in ("staleness", "worker", "version_pulled"):
        assert (plain.updates[column] == scaled.updates[column]).all()
    assert np.allclose(plain.updates["time_seconds"], scaled.updates["time_seconds"], rtol=0.02)
    assert np.allclose(scaled.updates["wall_seconds"] * 2, scaled.updates["time_seconds"])
    assert np.allclose(scaled.evaluations["wall_seconds"] * 2, scaled.evaluations["time_seconds"])
    summary = scaled.summarise()
    assert summary["emulated_seconds"] == pytest.approx(summary["real_seconds"] * 2)
    assert summary["emulated_seconds"] == pytest.approx(scaled.updates["time_seconds"].iloc[-1])


def test_a_run_can_end_by_time_alone(run_simulation: Simulate) -> None:
    run = run_simulation("one", "stop={time: 2s}")
    assert 1.5 < run.updates["time_seconds"].max() < 2.0
    assert run.evaluations["time_seconds"].iloc[-1] == 2.0


def test_a_run_can_end_by_accuracy(run_simulation: Simulate) -> None:
    run = run_simulation(
        "one", "stop={accuracy: 0.5, updates: 5000}", "evaluate.every=20", "algorithm.ratio=1.0"
    )
    assert run.evaluations["top1"].iloc[-2] >= 0.5
    assert (run.evaluations["top1"].iloc[:-2] < 0.5).all()


def test_evaluations_by_time(run_simulation: Simulate) -> None:
    run = run_simulation("one", "evaluate.every=1s", "stop={time: 3s}")
    assert list(run.evaluations["time_seconds"].iloc[:-1]) == pytest.approx([0.0, 1.0, 2.0])


def test_dense_updates_and_a_full_speed_world(run_simulation: Simulate) -> None:
    run = run_simulation("one", "algorithm={asgd: {learning_rate: 0.1}}", "workers.think=null")
    size = 64 * 16 + 16 + 16 * 10 + 10
    assert (run.updates["payload_up_bytes"] == 4 * size).all()
    assert (run.updates["think_seconds"] == 0).all()


DIVERGED = "diverged: pushes of 3 of 5 workers are NaN or infinite at version"


def test_a_run_that_diverges_ends_and_says_why(run_simulation: Simulate) -> None:
    """Two workers are refused and named; the third shows that the model has diverged."""
    run = run_simulation("one", "algorithm.learning_rate=1e30")
    finished = run.events[run.events["event"] == "finished"]
    assert finished["reason"].iloc[0].startswith(DIVERGED)
    refused = run.events[run.events["event"] == "rejected"]
    assert len(set(refused["node"])) == 2
    assert "NaN or infinite" in refused["reason"].iloc[0]


def test_a_loss_that_is_not_finite_ends_the_run_at_its_evaluation(
    run_simulation: Simulate,
) -> None:
    """Earlier results are kept: the best accuracy is from an earlier evaluation."""
    run = run_simulation("one", "algorithm.learning_rate=1e30", "evaluate.every=1")
    reason = run.events[run.events["event"] == "finished"]["reason"].iloc[0]
    assert reason.startswith("diverged: loss is ")
    assert reason.endswith(f" at version {len(run.updates)}")
    assert not np.isfinite(run.evaluations["loss"].iloc[-1])
    assert run.summarise()["accuracy"]["best"] == run.evaluations["top1"].max() > 0


WAITING = """
name: waiting
seed: 1
runtime: simulated
algorithm: bsp
model: {mlp: {hidden: [128]}}
dataset: digits
workers:
  count: 3
  classes:
    fast: {share: 0.67, speed: 500ms, link: {up: {rate: 160kbit}, down: {rate: 160kbit}}}
    slow: {share: 0.33, speed: 1500ms, link: {up: {rate: 160kbit}, down: {rate: 160kbit}}}
stop: {time: 1200s}
evaluate: {every: 600s, images: 10}
"""


@pytest.mark.parametrize(
    ("settings", "share"),
    [
        (["algorithm={bsp: {}}"], 0.8409),
        (["algorithm={bsp: {}}", "workers.think={law: constant, mean: 1s}"], 0.8664),
        (["algorithm={fixed-adacomm: {local_steps: 40}}"], 0.4770),
        (["algorithm={ssp: {slack: 40}}"], 0.7561),
        (["algorithm={adsp: {commit_rate: 1}}"], 0.0623),
    ],
)
@pytest.mark.slow
def test_waiting_shares_of_three_workers_by_hand(
    run_simulation: Simulate, settings: list[str], share: float
) -> None:
    """Steps of 0.5, 0.5 and 1.5 s, 0.833 s on average; a commit of 3.74 s made by the links' rates.

    The model: 64 * 128 + 128 + 128 * 10 + 10 = 9,610 values, 38,440 bytes; with 200 bytes of gRPC
    and 27 headers of 66 on the wire 40,422. The bucket lets 3,028 through at once, and is full
    again before the next message; the other 37,394 take 1.870 s at 20 kB/s, each way.

    BSP: a round takes 1.5 + 3.740 = 5.240 s:                1 - 0.833 / 5.240 = 84.09 %.
    With a second of thinking in it:                         1 - 0.833 / 6.240 = 86.64 %.
    Fixed ADACOMM: 40 * 1.5 + 3.740 = 63.74 s:               1 - 33.33 / 63.74 = 47.70 %.
    SSP: all run at the slow worker's pace once the fast ones lead by 40 steps, before 400 s: a step
    and a push without a model each, and a pull every 40: 40 * (1.5 + 1.870) + 1.870 = 136.7 s, or
    3.417 s a step:                                          1 - 0.833 / 3.417 = 75.61 %.
    ADSP: a commit a minute:                                 3.740 / 60 = 6.23 %.
    """
    run = run_simulation("waiting", *settings, text=WAITING)
    parts = ["compute_seconds", "think_seconds", "transfer_seconds", "blocked_seconds"]
    shares = []
    for _, own in run.updates.groupby("worker"):
        steady = own[own["time_seconds"] > 400]
        passed = steady["time_seconds"].iloc[-1] - steady["time_seconds"].iloc[0]
        shares.append(1 - steady["compute_seconds"].iloc[1:].sum() / passed)
        counted = steady[parts].iloc[1:]
        assert counted.to_numpy().sum() == pytest.approx(passed, rel=0.01)
    assert np.mean(shares) == pytest.approx(share, abs=0.01)
    steps = {"bsp": 1, "ssp": 1, "fixed-adacomm": 40}
    if expected := steps.get(run.scenario.algorithm.name):
        assert set(run.updates["steps"]) == {expected}


def test_at_every_checkpoint_of_adsp_commits_are_equal(run_simulation: Simulate) -> None:
    """Almost: a commit started just before the checkpoint arrives after it."""
    setting = "algorithm={adsp: {commit_rate: 2, check_period: 20s}}"
    run = run_simulation("waiting", setting, "stop.time=200s", text=WAITING)
    for checkpoint in range(20, 201, 20):
        before = run.updates[run.updates["time_seconds"] <= checkpoint]
        commits = before["worker"].value_counts().reindex(range(3), fill_value=0)
        assert commits.max() - commits.min() <= 2
        assert commits.max() == pytest.approx(checkpoint / 10, abs=1)
    means = run.updates.groupby("worker")["steps"].mean()
    assert means[0] == means[1] == pytest.approx(3 * means[2], rel=0.1)


@pytest.mark.parametrize(
    ("commit", "commits"),
    [("at_timeout", [(6, 12), (8, 16), (9, 18)]), ("after_batch", [(6, 10), (8, 13), (9, 13)])],
)
def test_a_worker_commits_at_the_ordered_rate(
    commit: str, commits: list[tuple[int, int]], run_simulation: Simulate
) -> None:
    """Two check periods of 60 s with steps of 3 s. At rates of 6, 8 and 9 timeouts are 10, 7.5 and
    6.7 s apart. After a batch, commits are 12, 9 and 9 s separate: 10, 13 and 13 of them."""
    for rate, expected in commits:
        run = run_simulation(
            f"{commit}-{rate}",
            f"algorithm={{adsp: {{commit_rate: {rate}, commit: {commit}}}}}",
            *("workers.count=2", "workers.think=", "workers.classes={equal: {speed: 3s}}"),
            *("stop={time: 120100ms}", "evaluate={every: 60s, images: 100}"),
        )
        counts = run.updates["worker"].value_counts().to_dict()
        assert counts == {0: expected, 1: expected}


def test_adsp_trains_on_links_without_delay(run_simulation: Simulate) -> None:
    """Its first orders are for the time when the workers already have the model."""
    bare = "workers={count: 2, classes: {one: {speed: 500ms}}}"
    setting = "algorithm={adsp: {commit_rate: 2}}"
    run = run_simulation("waiting", setting, bare, "stop.time=120s", text=WAITING)
    assert list(run.updates["time_seconds"]) == [30, 30, 60, 60, 90, 90]


SEARCH = (
    "algorithm={adsp: {check_period: 20s, epoch: 100s, target_loss: 0.1, learning_rate: 0.01}}",
    *("stop.time=200s", "evaluate.every=10s"),
)


@pytest.mark.slow
def test_adsp_searches_for_its_rate_and_is_reproducible(run_simulation: Simulate) -> None:
    """Evaluated at the start, the middle and the end of each trial of the run."""
    first, second = (
        run_simulation(name, *SEARCH, processes=count, text=WAITING)
        for name, count in (("first", 1), ("second", 2))
    )
    assert records(first) == records(second)
    during = first.evaluations[~first.evaluations["final"]]
    assert list(during["time_seconds"]) == [10.0 * number for number in range(20)]
    rates = first.updates.groupby(first.updates["time_seconds"] // 20)["worker"].value_counts()
    assert rates.max() > 1  # some period had more than one commit of a worker: a rate above 1


UNLINKED = (
    "ps.link.down.rate=null",
    "workers.classes={fast: {share: 0.6, speed: 10ms}, slow: {share: 0.4, speed: 50ms}}",
)
"""No links: fewer bytes change no moment."""


@pytest.mark.slow
def test_packed_pushes_train_the_same_model_with_fewer_bytes(run_simulation: Simulate) -> None:
    raw, packed, rounded = (
        run_simulation(name, *UNLINKED, f"encoding={name}")
        for name in ("raw", "packed", "packed16")
    )
    final = [run.folder.model / "final.safetensors" for run in (raw, packed, rounded)]
    assert final[0].read_bytes() == final[1].read_bytes() != final[2].read_bytes()
    sizes = [run.updates["payload_up_bytes"] for run in (raw, packed, rounded)]
    assert (sizes[0] > sizes[1]).all()
    assert (sizes[1] > sizes[2]).all()
    for run in (raw, packed, rounded):  # each entry of AdaComp has an index
        assert (run.updates["pickle9_bytes"] == 12 * run.updates["entries"]).all()
        assert (run.updates["payload_down_bytes"] == raw.updates["payload_down_bytes"]).all()
        encoding = run.summary["encoding"]
        assert encoding["name"] == run.folder.path.name
        assert encoding["update_bytes_mean"] == run.updates["payload_up_bytes"].mean()
        assert encoding["saturated"] == run.updates["saturated"].sum() == 0
