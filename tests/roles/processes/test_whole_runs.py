"""The roles as processes on the loopback: whole small runs on real data, and how they end."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed.scenario.load import load

LONGEST_SECONDS = 180.0  # timeout of every wait

# Runs in a process forked from one with all imports; gets the role, its arguments and the log.
Make = Any


def test_a_whole_run(make: Make) -> None:
    cast = make()
    cast.start_all(3)
    cast.wait_for("done")
    beside = ("evaluated", "load")
    names = [event["event"] for event in cast.events() if event["event"] not in beside]
    assert names[:5] == ["listening", "joined", "joined", "joined", "started"]
    assert names[5] == "finished"
    assert sorted(names[6:]) == ["done", "drained", "left", "left", "left"]
    rows = cast.rows()
    assert rows["version_applied"].tolist() == list(range(60))
    assert (rows["staleness"] == rows["version_applied"] - rows["version_pulled"]).all()
    assert (rows["payload_up_bytes"] == 8 * rows["entries"]).all()
    # max(1, floor(0.01 size)) of 144 + 16 + 16,384 + 64 + 640 + 10 entries, zeros not sent
    assert rows["entries"].max() == 1 + 1 + 163 + 1 + 6 + 1
    assert set(rows["payload_down_bytes"]) == {4 * 17258}
    assert set(rows["samples"]) == {10}
    for worker in range(3):
        sequences = rows["sequence"][rows["worker"] == worker]
        assert sequences.tolist() == list(range(1, len(sequences) + 1))
    assert (np.diff(rows["time_seconds"]) >= 0).all()
    for name in ("compute", "transfer"):
        assert (rows[f"{name}_seconds"] > 0).all()
    measured = cast.events("evaluated")
    assert measured[0]["version"] == 0
    assert 0 <= measured[0]["time_seconds"] <= rows["time_seconds"][0]
    assert [event["final"] for event in measured] == [False] * (len(measured) - 1) + [True]
    assert {event["images"] for event in measured[:-1]} == {100}
    final = measured[-1]
    assert (final["version"], final["images"]) == (60, 360)
    assert final["payload_up_bytes"] == rows["payload_up_bytes"].sum()
    assert 0 <= final["top1"] <= final["top5"] <= 1
    assert cast.exit_status("evaluator") == 0
    assert cast.terminate() == {0}
    assert cast.log("w0").read_text(encoding="utf-8") == ""


NOISY = """
import numpy as np

def load():
    rng = np.random.default_rng(1)
    images = rng.integers(0, 256, (60, 1, 1, 8)).astype("uint8")
    numbers = images[:, 0, 0].mean(1) / 100
    return images, numbers, images[:20], numbers[:20]

def noisy(images, rng):
    ready = images.astype("float32") / 128 - 1
    return ready if rng is None else ready + rng.normal(0, 0.1, ready.shape).astype("float32")
"""


def test_random_transforms_and_numeric_targets_live_and_simulated(
    make: Make, play_both: Any, tmp_path: Path
) -> None:
    """Bulk-synchronous rounds are bit-identical, so both must have drawn the same."""
    own = "{name: custom, file: data.py, class: load, transform: noisy, partition: shared}"
    parts = {
        "algorithm": "{name: bsp, learning_rate: 0.05}",
        "model": "linear-svm",
        "dataset": own,
        "workers": "{count: 3, batch_size: 4, classes: {any: {speed: 1ms}}}",
        "evaluate": "{every: 20, images: 10}",
    }
    cast, virtual = make(**parts), make(**parts, runtime="simulated")
    for one in (cast, virtual):
        one.put_own_file("data.py", NOISY)
        folder = one.folder
        dataset = load(folder / "scenario.yaml", custom_files=folder / "custom").dataset
        prepared = dataset.prepare(tmp_path / "cache", environment={}, folder=folder / "custom")
        (folder / "data").unlink()
        (folder / "data").symlink_to(prepared)
    play_both(cast, virtual)
    first, *_, last = cast.events("evaluated")
    assert (last["top1"], last["top5"], last["images"]) == (None, None, 20)
    assert last["loss"] < first["loss"]


@pytest.mark.parametrize("model", ["resnet", "vgg-s"])
def test_networks_of_modules_live_and_simulated(make: Make, play_both: Any, model: str) -> None:
    """Twelve gradients in rounds of three; each batch is normalised by itself."""
    parts = {
        "algorithm": "{name: bsp, learning_rate: 0.05}",
        "model": model,
        "workers": "{count: 3, batch_size: 4, classes: {any: {speed: 1ms}}}",
        "stop": "{updates: 12}",
        "evaluate": "{every: 6, images: 20}",
    }
    play_both(make(**parts), make(**parts, runtime="simulated"))


DROPPING = """
from torch import nn

class Net(nn.Module):
    def __init__(self, image_shape, classes):
        super().__init__()
        self.hidden = nn.Sequential(nn.Linear(64, 8), nn.BatchNorm1d(8), nn.RReLU(), nn.Dropout())
        self.score = nn.Linear(8, classes)

    def forward(self, images):
        return self.score(self.hidden(images.flatten(1)))
"""


def test_draws_of_an_own_network_live_and_simulated(make: Make, play_both: Any) -> None:
    """479 samples each are 2 x 239 + 1: a last batch of one would break BatchNorm1d.

    The batch before takes it too: two steps per epoch.
    """
    parts = {
        "algorithm": "{name: fedavg, learning_rate: 0.05}",
        "model": "{name: custom, file: net.py, class: Net}",
        "workers": "{count: 3, batch_size: 239, classes: {any: {speed: 1ms}}}",
        "stop": "{updates: 12}",
        "evaluate": "{every: 6, images: 100}",
    }
    cast, virtual = make(**parts), make(**parts, runtime="simulated")
    for one in (cast, virtual):
        one.put_own_file("net.py", DROPPING)
    play_both(cast, virtual)
    rows = cast.rows()
    assert set(zip(rows["samples"].tolist(), rows["steps"].tolist(), strict=True)) == {(479, 2)}


def test_a_model_that_cannot_be_saved_ends_the_evaluator_with_an_error(make: Make) -> None:
    cast = make()
    (cast.folder / "model" / "best.safetensors").mkdir(parents=True)
    cast.start_all(3)
    assert cast.exit_status("evaluator") == 3
    told = f"evaluator: {cast.folder}/model: the model cannot be saved: Is a directory.\n"
    assert cast.log("evaluator").read_text(encoding="utf-8") == told


def test_a_killed_worker_does_not_block_others(make: Make) -> None:
    cast = make(stop="{updates: 400}")
    cast.start_all(3)
    cast.wait_until(lambda: 2 in cast.rows()["worker"])
    cast.processes["w2"].kill()
    cast.wait_for("done")
    assert len(cast.rows()) == 400
    drained, finished = cast.events("drained")[0], cast.events("finished")[0]
    assert drained["untold"] == ["w2"]
    assert drained["time"] - finished["time"] < LONGEST_SECONDS
    assert cast.events("rejected") == []
    assert cast.terminate() == {0}


def test_a_worker_with_a_rejected_push_exits_and_says_why(make: Make) -> None:
    cast = make(algorithm="asgd", workers="{count: 2}", stop="{updates: 100000}")
    broken = cast.folder / "broken"
    broken.mkdir()
    shutil.copy(cast.folder / "scenario.yaml", broken)
    shutil.copytree(cast.folder / "data", broken / "data")
    images = np.load(broken / "data" / "train_images.npy")
    np.save(broken / "data" / "train_images.npy", np.full_like(images, np.nan))
    cast.start("ps")
    cast.start("w0")
    cast.start("w1", folder=broken)
    assert cast.exit_status("w1") == 8
    (event,) = cast.events("rejected")
    assert (event["node"], event["reason"]) == ("w1", "w1: a value is NaN or infinite")
    assert "w1: a value is NaN or infinite" in cast.log("w1").read_text(encoding="utf-8")
    assert [event["node"] for event in cast.events("left")] == ["w1"]
    before = len(cast.rows())
    cast.wait_until(lambda: len(cast.rows()) > before)  # w0 continues
    assert 1 not in cast.rows()["worker"]
    assert cast.terminate() == {0}


def test_sigterm_ends_all_roles_at_any_time(make: Make) -> None:
    cast = make(
        workers="{count: 2, think: {law: constant, mean: 1h}}",
        stop="{time: 2h}",
        evaluate="{every: 1h}",
    )
    cast.start_all(2)
    cast.wait_for("evaluated")
    for node in ("w0", "w1", "evaluator", "ps"):
        cast.processes[node].terminate()
        assert cast.exit_status(node) == 0
    assert {event["node"] for event in cast.events("left")} == {"w0", "w1"}
    assert all(cast.log(node).read_text(encoding="utf-8") == "" for node in cast.processes)


OVER = """
import os, signal
from testbed.roles.process import run
status = run("w0", lambda: None)
os.kill(os.getpid(), signal.SIGTERM)
raise SystemExit(status)
"""


def test_a_sigterm_between_the_end_of_a_role_and_of_its_process_is_ignored() -> None:
    done = subprocess.run([sys.executable, "-c", OVER], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


BESIDE = """
import os, signal, threading
from testbed.roles.process import run, wait_for_end

def deliver():
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    os.kill(os.getpid(), signal.SIGTERM)

def body():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    threading.Timer(0.2, deliver).start()
    wait_for_end()

raise SystemExit(run("w0", body))
"""


def test_a_sigterm_that_does_not_interrupt_a_wait_still_ends_it() -> None:
    """It arrives in another thread: like one just before the wait, it interrupts nothing."""
    done = subprocess.run([sys.executable, "-c", BESIDE], check=False, timeout=180)
    assert done.returncode == 0


def test_sigterm_ends_roles_that_wait_for_others(make: Make) -> None:
    cast = make()
    cast.start_all(2)  # the third never comes
    cast.wait_until(lambda: len(cast.events("joined")) == 2)
    assert cast.terminate() == {0}


def test_an_unattended_server_ends_after_the_training(make: Make) -> None:
    cast = make()
    cast.start_all(3)
    cast.wait_for("started")
    cast.hang_up("ps")
    assert cast.exit_status("ps") == 0
    assert cast.events()[-1]["event"] in ("done", "left")
    assert cast.events("done")[0]["applied"] == 60


def test_an_unattended_server_that_waits_for_workers_ends(make: Make) -> None:
    cast = make()
    cast.start("ps")
    cast.wait_for("listening")
    cast.hang_up("ps")
    assert cast.exit_status("ps") == 0
    assert cast.events("started", "done") == []


def test_workers_end_without_a_parameter_server(make: Make) -> None:
    cast = make(stop="{updates: 1000000}")
    cast.start_all(3)
    cast.wait_until(lambda: len(cast.rows()) > 0)
    cast.processes["ps"].kill()
    for index in range(3):
        assert cast.exit_status(f"w{index}") == 5
        text = cast.log(f"w{index}").read_text(encoding="utf-8")
        assert f"w{index}: ipv4:{cast.server}: the parameter server has not answered for" in text


@pytest.mark.parametrize(
    ("secret", "model", "reason"),
    [
        ("guess", "digits-cnn", "UNAUTHENTICATED"),
        ("secret", "{mlp: {hidden: [8]}}", "names or shapes of its tensors differ"),
    ],
)
def test_an_unknown_worker_is_refused(make: Make, secret: str, model: str, reason: str) -> None:
    cast, other = make(), make(model=model)
    cast.start("ps")
    cast.start("w0", folder=other.folder, secret=secret)
    assert cast.exit_status("w0") == 8
    assert reason in cast.log("w0").read_text(encoding="utf-8")
    assert len(cast.events("rejected")) == 1
    assert cast.events("joined") == []
    assert cast.terminate() == {0}


def test_paced_workers_take_their_time(make: Make) -> None:
    cast = make(
        workers="{count: 2, think: {law: constant, mean: 300ms}, classes: {slow: {speed: 200ms}}}",
        stop="{time: 4s}",
        evaluate="{every: 1s, images: 50}",
        time_scale="4",
    )
    cast.start_all(2)
    cast.wait_for("done")
    rows = cast.rows()
    assert len(rows) > 0
    assert (rows["compute_seconds"] >= np.float32(0.2)).all()
    assert (rows["think_seconds"] >= np.float32(0.3)).all()
    assert (rows["late_seconds"] >= 0).all()
    assert rows["time_seconds"].max() < 4
    np.testing.assert_allclose(rows["time_seconds"], 4 * rows["wall_seconds"])
    assert cast.events("finished")[0]["reason"] == "4 s of emulated time passed"
    measured = cast.events("evaluated")
    times = [event["time_seconds"] for event in measured[1:-1]]
    assert all(time >= number for number, time in enumerate(times, start=1))
    assert measured[-1]["final"]
    assert cast.terminate() == {0}


ENDS_WHEN_LEFT = """
import os, signal, sys
from testbed.algorithms.asgd import Asgd, AsgdServer, AsgdWorker

def watch(frame, event, argument):
    if event == "call" and frame.f_code.co_name == "leave":
        os.kill(os.getpid(), signal.SIGKILL)

class Server(AsgdServer):
    def push(self, worker, update, now):
        sys.setprofile(watch)  # after the end, halves are not notified of workers that leave
        return super().push(worker, update, now)

class Mine(Asgd):
    name: str = "mine"
    def halves(self):
        return AsgdWorker, Server
"""


def test_a_server_that_ends_while_a_worker_leaves_does_not_fail_the_worker(make: Make) -> None:
    """The worker knows that training has ended: it waits for SIGTERM, as if it had left."""
    own = "{custom: {file: own.py, class: Mine, learning_rate: 0.1}}"
    cast = make(algorithm=own, workers="{count: 1}", stop="{updates: 3}")
    cast.put_own_file("own.py", ENDS_WHEN_LEFT)
    cast.start_all(1)
    assert cast.exit_status("ps") == -signal.SIGKILL
    cast.processes["w0"].join(1.0)  # long enough to notice, and to end
    assert cast.processes["w0"].is_alive()
    cast.terminate()
    assert cast.exit_status("w0") == 0
    assert cast.log("w0").read_text(encoding="utf-8") == ""


def test_training_ends_at_the_target_accuracy(make: Make) -> None:
    cast = make(stop="{accuracy: 0.5, updates: 100000}", evaluate="{every: 10, images: 100}")
    cast.start_all(3)
    cast.wait_for("done")
    measured = cast.events("evaluated")
    assert measured[-2]["top1"] >= 0.5 > max(event["top1"] for event in measured[:-2])
    assert (
        cast.events("finished")[0]["reason"] == f"accuracy {measured[-2]['top1']:.4f} reached 0.5"
    )
    assert cast.terminate() == {0}


def test_a_role_launched_with_wrong_arguments_says_so(make: Make) -> None:
    cast = make()
    cast.start("w0", folder=cast.folder / "nowhere")
    assert cast.exit_status("w0") == 2
    assert "scenario.yaml" in cast.log("w0").read_text(encoding="utf-8")
    cast.start("w1", secret="")
    assert cast.exit_status("w1") == 5
    assert cast.log("w1").read_text(encoding="utf-8") == (
        "w1: a role was launched with an invalid argument token: "
        "String should have at least 1 character\n"
    )
