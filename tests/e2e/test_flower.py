"""Flower on emulated links: a SuperLink, SuperNodes, and an app that neither knows about."""

from __future__ import annotations

import csv
import fcntl
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import yaml

from testbed.cli.flower import write_scenario

pytestmark = [pytest.mark.root, pytest.mark.slow]
EXAMPLE = Path(__file__).parents[2] / "scenarios" / "flower"
FLWR = "flwr==1.42.0"
PYTHON = Path("/usr/bin/python3")
"""The interpreter of the nodes; testbed's image has the same one as Debian 12."""

INVALID_FILE, HOST, NODE_FAILED, VERDICT = 2, 3, 5, 6
LONG = 400.0
OBJECTS = 12
"""Of a message with four arrays: each array and its chunk, two records, their dict, the message."""

UP_HEAD, DOWN_HEAD = 838, 129
"""Of an HTTP request, most of it the key and the signature of the SuperNode; and of an answer."""

ASK, FETCH, ANNOUNCE, GIVE = 13, 90, 970, 127
"""Bodies of requests: for a message, for an object, of a reply; and what is around an object."""

ANNOUNCED, WANTED, FOUND, STORED = 947, 826, 7, 2
"""Bodies of the answers: a message and its objects' names, names, around an object, and no more."""


@pytest.fixture(scope="module")
def flower() -> str:
    """$TESTBED_FLOWER, or an environment of its own: that of testbed cannot have Flower.

    To install it takes most of a minute, so later tests find it there. It is not in the user's
    home, into which containers may not look.
    """
    if given := os.environ.get("TESTBED_FLOWER"):
        return given
    cache = Path("/var/tmp") / f"testbed-tests-{os.getuid()}"
    cache.mkdir(exist_ok=True)
    assert cache.stat().st_uid == os.getuid()
    cache.chmod(0o755)  # whatever the umask
    folder = cache / f"{FLWR}-{PYTHON.resolve().name}"
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ((folder / "complete").exists() and (folder / "bin/python").exists()):
            install(folder)
            (folder / "complete").touch()
    return str(folder)


def install(folder: Path) -> None:
    """Create the environment; skip the test where there is no Python for it, or no packages."""
    if not PYTHON.exists():
        pytest.skip(f"needs {PYTHON}, as testbed's image has it")
    venv = [PYTHON, "-m", "venv", "--clear", "--without-pip"]
    subprocess.run([*venv, folder], check=True)
    pip = [sys.executable, "-m", "pip", "--python", folder, "install", "--quiet"]
    done = subprocess.run(
        [*pip, FLWR, "scikit-learn>=1.4"], check=False, capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"needs a package index with {FLWR}: {done.stderr[-300:]}")


OF_OLDER_APPS = """
[tool.flwr.federations]
default = "local"

[tool.flwr.federations.local]
options.num-supernodes = 10
"""
"""Flower moves this to its own configuration, and changes the file: here, only in a copy."""


def scenario(bed: Any, flower: str, **changes: Any) -> str:
    shutil.copytree(EXAMPLE / "app", bed.path / "app", dirs_exist_ok=True)
    with (bed.path / "app" / "pyproject.toml").open("a") as project:
        project.write(OF_OLDER_APPS)
    link = {"up": {"rate": "20mbit"}, "down": {"rate": "20mbit"}}
    own = {"app": "./app", "python": flower, "environment": {"OMP_NUM_THREADS": "1"}}
    fields = {**own, "count": 4, "link": link, **changes}
    text = yaml.safe_dump({"name": "flower", "workload": {"flower": fields}})
    file: str = bed.scenario("flower.yaml", text)
    return file


def by_hand(hidden: int) -> tuple[int, int]:
    """Return the data of TCP that a SuperNode sends and receives in a round.

    Each way the app's parameters in float64, with a header of NumPy of 128 B for each array, and
    1,770 B of Flower's own records, mostly SHA-256 sums that name objects. Every object is a
    request of its own.
    """
    parameters = 64 * hidden + hidden + hidden * 10 + 10
    content = 8 * parameters + 4 * 128 + 1770
    requests = 1 + OBJECTS + 1 + 1 + OBJECTS  # the third confirms that all objects have arrived
    bodies = ASK + (OBJECTS + 1) * FETCH + ANNOUNCE + OBJECTS * GIVE
    answers = ANNOUNCED + WANTED + OBJECTS * (FOUND + STORED)
    return content + requests * UP_HEAD + bodies, content + requests * DOWN_HEAD + answers


def bytes_by_trainings(up: Any) -> dict[int, tuple[float, float]]:
    """Return medians of what trainings have sent and received, by their number in a SuperNode."""
    found: dict[int, list[tuple[int, int]]] = {}
    for index in range(20):
        name = f"supernode{index}"
        trained = up.folder.log(name).read_text().count("Sent successfully")
        found.setdefault(trained, []).append(bytes_of_trainings(up, name))
    return {
        trained: (median(sent for sent, _ in values), median(received for _, received in values))
        for trained, values in found.items()
    }


def bytes_of_trainings(run: Any, name: str) -> tuple[int, int]:
    """Return what a SuperNode sent and received in all intervals with more than idle traffic.

    An idle one asks for messages every three seconds, and sends a heartbeat every thirty.
    """
    with (run.folder.path / "pairs.csv").open() as lines:
        rows = [row for row in csv.DictReader(lines) if row["node"] == name]
    sent = received = 0
    for before, after in pairwise(rows):
        seconds = float(after["time_seconds"]) - float(before["time_seconds"])
        up = int(after["sent_bytes"]) - int(before["sent_bytes"])
        down = int(after["received_bytes"]) - int(before["received_bytes"])
        requests = (seconds / 3 + 1) + (seconds / 30 + 1)
        if up > requests * (UP_HEAD + ASK + 20) or down > requests * (DOWN_HEAD + 2):
            sent, received = sent + up, received + down
    return sent, received


def metrics(up: Any) -> dict[str, list[float]]:
    """Return the values of each metric, all of which `flwr run` has printed."""
    values: dict[str, list[float]] = {}
    with (up.folder.path / "metrics.csv").open() as lines:
        for row in csv.DictReader(lines):
            assert row["node"] == "flwr"
            values.setdefault(row["metric"], []).append(float(row["value"]))
    return values


@pytest.mark.parametrize(
    ("hidden", "tolerance"), [(512, 0.05), pytest.param(8192, 0.01, marks=pytest.mark.nightly)]
)
def test_two_rounds_reach_the_record(bed: Any, flower: str, hidden: int, tolerance: float) -> None:
    """A SuperNode fetches and returns the parameters once per round: .3 or 4.9 MB each way.

    In addition, it fetches the app once, of 7 KB.
    """
    better = {"accuracy": "higher", "train_loss": "lower"}
    config = {"min-nodes": 4, "hidden": hidden}
    file = scenario(bed, flower, rounds=2, config=config, metrics=better)
    up = bed.up(file=file)
    done = up.end(within=LONG)
    assert done.status in {0, VERDICT}, done.err + done.out
    assert up.folder.state().reason == "all final programs have ended with status 0"
    values = metrics(up)
    assert values["round"] == [1.0, 2.0]
    assert len(values["accuracy"]) == 3  # one before the first round
    assert values["train_loss"][1] < values["train_loss"][0]
    for index in range(4):
        assert "not forked" not in up.folder.log(f"supernode{index}").read_text()
        measured = bytes_of_trainings(up, f"supernode{index}")
        assert measured == pytest.approx([2 * one for one in by_hand(hidden)], rel=tolerance)
    assert OF_OLDER_APPS in (bed.path / "app" / "pyproject.toml").read_text()
    assert bed.remains(up.name) == []


@pytest.mark.docker
@pytest.mark.parametrize("runtime", ["docker"], indirect=True)
def test_a_round_in_docker(bed: Any, flower: str, runtime: str) -> None:
    """A container per SuperNode, with the environment of the host."""
    if (Path(flower) / "bin/python").resolve() != Path("/usr/bin/python3.11"):
        pytest.skip("needs an environment of Debian 12's /usr/bin/python3.11, as the image has it")
    config = {"min-nodes": 2, "hidden": 64}
    file = scenario(bed, flower, count=2, rounds=1, config=config, metrics={"accuracy": "higher"})
    up = bed.up("--runtime", runtime, file=file)
    done = up.end(within=LONG)
    assert done.status in {0, VERDICT}, done.err + done.out
    assert up.folder.state().reason == "all final programs have ended with status 0"
    values = metrics(up)
    assert (values["round"], values["failures"]) == ([1.0], [0.0])
    assert len(values["accuracy"]) == 2  # one before the round
    for index in range(2):
        log = up.folder.log(f"supernode{index}").read_text()
        assert log.count("Sent successfully") >= 1 and "not forked" not in log
    assert bed.remains(up.name) == []


def test_an_app_that_fails_fails_the_run(bed: Any, flower: str) -> None:
    file = scenario(bed, flower, count=1, config={"min-nodes": 1, "hidden": 0})
    up = bed.up(file=file)
    done = up.end(within=LONG)
    assert done.status == NODE_FAILED
    assert "finished:failed" in done.err
    assert bed.remains(up.name) == []


def test_an_app_that_cannot_run_is_refused_before(bed: Any, flower: str) -> None:
    file = scenario(bed, flower)
    project = bed.path / "app" / "pyproject.toml"
    text = project.read_text()
    project.write_text(text.replace("scikit-learn>=1.4", "nonesuch>=3"))
    refused = bed.run("validate", file)
    assert refused.status == INVALID_FILE
    assert "found an app that requires nonesuch>=3, which is not installed" in refused.err
    project.write_text(text.replace("server_app:app", "server:app"))
    refused = bed.run("validate", file)
    assert refused.status == INVALID_FILE
    assert "an app that `flwr build` accepts" in refused.err
    assert "Unable to load module digits_app.server" in refused.err


def test_an_app_runs_without_a_scenario(
    bed: Any, flower: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario(bed, flower)
    options = ("--flower", "app", "--devices", "3", "--profile", "fibre", "--python", flower)
    refused = bed.run("up", *options, "--set", "workload.flower.rounds=0")
    assert refused.status == INVALID_FILE
    assert not (bed.path / "digits-app.yaml").exists()
    with socket.create_server(("127.0.0.1", 0)) as taken:  # as any refusal by the host
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        refused = bed.run("up", *options, "--metrics-address", address)
    assert refused.status == HOST, refused.err
    assert "removed digits-app.yaml, as nothing was started" in refused.err
    assert "doctor" not in refused.err  # which knows neither the file nor the address
    assert not (bed.path / "digits-app.yaml").exists()
    monkeypatch.chdir(bed.path)
    for is_new in (True, False):  # the second finds the same scenario
        found = write_scenario(Path("app"), (), devices=3, profile="fibre", python=Path(flower))
        assert found == (Path("digits-app.yaml"), is_new)
    written = yaml.safe_load((bed.path / "digits-app.yaml").read_text())
    fields = {"app": "app", "python": flower, "count": 3, "link": {"profile": "fibre-eu"}}
    assert written == {"name": "digits-app", "workload": {"flower": fields}}
    assert "a workload of 3 programs in 5 nodes" in bed.run("validate", "digits-app.yaml").out


@pytest.mark.nightly
def test_twenty_supernodes_of_which_two_are_frozen(bed: Any, flower: str) -> None:
    """Each of six rounds has five clients, of which those that are frozen fail.

    SuperNodes that trained twice transferred the model once more than those that trained once.
    """
    shutil.copytree(EXAMPLE, bed.path, dirs_exist_ok=True)
    own = ("--set", f"workload.flower.python={flower}", "--set", "network.missing=warn")
    up = bed.up(*own, file="flower.yaml")
    done = up.end(within=1800)
    assert done.status in {0, VERDICT}, done.err + done.out
    assert up.folder.state().reason == "all final programs have ended with status 0"
    assert metrics(up)["round"] == [1, 2, 3, 4, 5, 6]
    log = up.folder.log("flwr").read_text()
    clients = re.findall(r"Received (\d+) results and (\d+) failures", log)
    assert len(clients) == 6 and clients[:2] == [("5", "0")] * 2
    failures = [int(failed) for _, failed in clients]
    assert max(failures) <= 2 and sum(failures) == log.count("Node Unavailable")
    events = [json.loads(line) for line in up.folder.events.read_text().splitlines()]
    frozen = [(one["begins"], one["nodes"]) for one in events if one["event"] == "fault"]
    assert frozen == [(begins, ["supernode5", "supernode15"]) for begins in (True, False)]
    once, twice = (bytes_by_trainings(up)[trained] for trained in (1, 2))
    up_bytes, down_bytes = by_hand(512)
    assert twice[0] - once[0] == pytest.approx(up_bytes, rel=0.01)
    assert twice[1] - once[1] == pytest.approx(down_bytes, rel=0.01)
    assert bed.remains(up.name) == []


def test_the_example_is_valid(bed: Any, flower: str) -> None:
    own = ("--set", f"workload.flower.python={flower}")
    found = bed.run("validate", str(EXAMPLE / "flower.yaml"), *own)
    assert "a workload of 3 programs in 22 nodes" in found.out, found.err
